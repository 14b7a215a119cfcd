# The programs: qf (quantize, judge, run, ...) and qf-bench (kernels, checked before they are timed).
# They lie in bin/ of the build folder, since the library's target is called qf as well.
find_package(CLI11 2.1 REQUIRED)

file(GLOB QF_CLI_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.cpp)
add_executable(qf_cli ${QF_CLI_SOURCES})
set_target_properties(qf_cli PROPERTIES OUTPUT_NAME qf RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
target_include_directories(qf_cli PRIVATE ${PROJECT_SOURCE_DIR})
# Nothing here is hot, and its headers are large: half the optimizing is half the build.
target_compile_options(qf_cli PRIVATE $<$<CONFIG:Release>:-O1>)
target_link_libraries(qf_cli PRIVATE qf_options qf CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt-header-only)
install(TARGETS qf_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

file(GLOB QF_BENCH_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/benchmarks/*.cpp)
add_executable(qf_bench ${QF_BENCH_SOURCES})
set_target_properties(qf_bench PROPERTIES OUTPUT_NAME qf-bench RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
target_include_directories(qf_bench PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(qf_bench PRIVATE qf_options qf CLI11::CLI11 nlohmann_json::nlohmann_json fmt::fmt-header-only)
install(TARGETS qf_bench RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
