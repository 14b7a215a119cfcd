# cmake --install: headers, libraries, programs, a CMake package with components (headers, cxx, capi) and two .pc files
# (qf: the C face; qf-cxx: the C++ library). Everything is found relative to the files themselves, so a tree can be moved.
include(CMakePackageConfigHelpers)
set(QF_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/qf)

# core/json.hpp needs a JSON package and serves the library's own sources only.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/qf DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.hpp" PATTERN "core/json.hpp" EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/capi/qf.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(TARGETS qf_headers EXPORT qf-headers)
install(TARGETS qf EXPORT qf-cxx)
install(TARGETS qf_capi EXPORT qf-capi)
foreach(component headers cxx capi)
  install(EXPORT qf-${component} NAMESPACE qf:: DESTINATION ${QF_CMAKE_DIR})
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/cmake/QfPackages.cmake DESTINATION ${QF_CMAKE_DIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/qfConfig.cmake.in ${PROJECT_BINARY_DIR}/qfConfig.cmake
  INSTALL_DESTINATION ${QF_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/qfConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/qfConfig.cmake ${PROJECT_BINARY_DIR}/qfConfigVersion.cmake DESTINATION ${QF_CMAKE_DIR})

set(QF_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH QF_PC_PREFIX /${QF_PC_DIR} /)
string(REGEX REPLACE "/$" "" QF_PC_PREFIX "${QF_PC_PREFIX}")
if(BUILD_SHARED_LIBS)
  set(QF_PC_CXX_LIBRARY "-L\${libdir} -lqf++")
else()
  set(QF_PC_CXX_LIBRARY "\${libdir}/libqf.a")
endif()
foreach(name qf qf-cxx)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${name}.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${QF_PC_DIR})
endforeach()
