# Targets: qf::headers (include path only), qf::kernels (needs no package), qf::qf (everything but the C face).
add_library(qf_headers INTERFACE)
add_library(qf::headers ALIAS qf_headers)
set_target_properties(qf_headers PROPERTIES EXPORT_NAME headers)
target_compile_features(qf_headers INTERFACE cxx_std_20)
target_include_directories(qf_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# Sources are those that lie in the folders; a new file needs no line here.
file(GLOB QF_KERNEL_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/kernels/cpu/*.cpp ${PROJECT_SOURCE_DIR}/src/kernel_*.cpp)
file(GLOB QF_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cpp)
list(REMOVE_ITEM QF_SOURCES ${QF_KERNEL_SOURCES})

add_library(qf_kernels OBJECT ${QF_KERNEL_SOURCES})
target_link_libraries(qf_kernels PUBLIC qf_headers PRIVATE qf_options)
target_include_directories(qf_kernels PRIVATE ${PROJECT_SOURCE_DIR})

if(NOT QF_KERNELS_ONLY)
  find_package(Eigen3 3.4 REQUIRED NO_MODULE)
  find_package(nlohmann_json 3.11 REQUIRED)
  find_package(fmt 9 REQUIRED)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
  find_path(PTHREADPOOL_INCLUDE pthreadpool.h REQUIRED)
  find_library(PTHREADPOOL_LIBRARY pthreadpool REQUIRED)
  find_path(XXHASH_INCLUDE xxhash.h REQUIRED)
  find_package(Threads REQUIRED)

  add_library(qf ${QF_SOURCES} $<TARGET_OBJECTS:qf_kernels>)
  add_library(qf::qf ALIAS qf)
  target_link_libraries(qf PUBLIC qf_headers PRIVATE $<BUILD_INTERFACE:qf_options>)
  target_include_directories(qf PRIVATE ${PROJECT_SOURCE_DIR} ${PTHREADPOOL_INCLUDE} ${XXHASH_INCLUDE})
  target_compile_definitions(qf PRIVATE EIGEN_DONT_PARALLELIZE)
  # Only what a static library needs at its users' link step; headers of these packages stay inside.
  target_link_libraries(qf PRIVATE $<BUILD_INTERFACE:Eigen3::Eigen> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json>
    $<BUILD_INTERFACE:fmt::fmt-header-only> PkgConfig::PCRE2 ${PTHREADPOOL_LIBRARY} Threads::Threads)
endif()
