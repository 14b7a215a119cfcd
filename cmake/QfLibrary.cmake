# Targets: qf::headers (include path only), qf::kernels (needs no package), qf::qf (everything, the C face's objects
# included when it is static), qf::capi (libqf.so: the C face alone).
add_library(qf_headers INTERFACE)
add_library(qf::headers ALIAS qf_headers)
set_target_properties(qf_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(qf_headers INTERFACE cxx_std_20)
target_include_directories(qf_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# Sources are those that lie in the folders; a new file needs no line here.
file(GLOB QF_KERNEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/*.cpp ${PROJECT_SOURCE_DIR}/src/kernel_*.cpp)
file(GLOB QF_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
file(GLOB QF_CAPI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/capi/*.cpp)
list(REMOVE_ITEM QF_SOURCES ${QF_KERNEL_SOURCES})

if(QF_CUDA)
  file(GLOB QF_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cuda/*.cu)
  if(NOT QF_CUDA_SOURCES)
    message(STATUS "qf: this version has no CUDA kernels, QF_CUDA adds nothing")
  endif()
endif()

add_library(qf_kernels OBJECT ${QF_KERNEL_SOURCES})
target_link_libraries(qf_kernels PUBLIC qf_headers PRIVATE qf_options)
target_include_directories(qf_kernels PRIVATE ${PROJECT_SOURCE_DIR})

if(NOT QF_KERNELS_ONLY)
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(fmt 9 REQUIRED)
  find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
  find_package(Threads REQUIRED)
  include(QfPackages)
  if(QF_MISSING_PACKAGES)
    message(FATAL_ERROR "qf needs these packages: ${QF_MISSING_PACKAGES}")
  endif()

  add_library(qf_capi_objects OBJECT ${QF_CAPI_SOURCES})
  target_link_libraries(qf_capi_objects PRIVATE qf_headers qf_options)
  target_include_directories(qf_capi_objects PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/capi)
  set_target_properties(qf_capi_objects PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

  add_library(qf ${QF_SOURCES} $<TARGET_OBJECTS:qf_kernels>)
  add_library(qf::qf ALIAS qf)
  target_link_libraries(qf PUBLIC qf_headers PRIVATE $<BUILD_INTERFACE:qf_options>)
  target_include_directories(qf PRIVATE ${PROJECT_SOURCE_DIR} ${XXHASH_INCLUDE})
  target_link_libraries(qf PRIVATE $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
    $<BUILD_INTERFACE:fmt::fmt-header-only> ${QF_LINK_PACKAGES} Threads::Threads)
  if(BUILD_SHARED_LIBS)
    # libqf.so is the C face; the C++ library has another name and, while the version is 0.x, no stable ABI.
    set_target_properties(qf PROPERTIES OUTPUT_NAME qf++ VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  else()
    target_sources(qf PRIVATE $<TARGET_OBJECTS:qf_capi_objects>)
  endif()

  # The ABI's number is its soname; capi/qf.h says the same (QF_ABI_VERSION).
  file(STRINGS ${PROJECT_SOURCE_DIR}/capi/qf.h QF_ABI_LINE REGEX "^#define QF_ABI_VERSION ")
  string(REGEX REPLACE "^#define QF_ABI_VERSION +([0-9]+).*" "\\1" QF_ABI_VERSION "${QF_ABI_LINE}")
  add_library(qf_capi SHARED $<TARGET_OBJECTS:qf_capi_objects>)
  add_library(qf::capi ALIAS qf_capi)
  set_target_properties(qf_capi PROPERTIES EXPORT_NAME capi OUTPUT_NAME qf SOVERSION ${QF_ABI_VERSION}
    VERSION ${QF_ABI_VERSION}.${PROJECT_VERSION_MINOR}.${PROJECT_VERSION_PATCH}
    LINKER_LANGUAGE CXX LINK_DEPENDS ${PROJECT_SOURCE_DIR}/capi/qf.map)
  target_include_directories(qf_capi INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/capi> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(qf_capi PRIVATE $<BUILD_INTERFACE:qf> $<BUILD_INTERFACE:qf_options>)
  target_link_options(qf_capi PRIVATE "LINKER:--version-script=${PROJECT_SOURCE_DIR}/capi/qf.map")
  if(NOT QF_SANITIZE) # a sanitizer's run time may be defined by the program only
    target_link_options(qf_capi PRIVATE LINKER:-z,defs)
  endif()
endif()
