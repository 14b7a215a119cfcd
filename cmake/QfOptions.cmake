# How every target of this project is compiled: warnings and sanitizers.
add_library(qf_options INTERFACE)
target_compile_options(qf_options INTERFACE
  -Wall -Wextra $<$<CXX_COMPILER_ID:GNU>:-Wshadow=local> -Wno-missing-field-initializers
  $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>
  # g++ 12 sees overlaps inside its own std::string (GCC bug 105651).
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-restrict>
  -ffp-contract=off) # results don't depend on what the compiler fuses
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(qf_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-unused-command-line-argument>)
endif()
if(QF_WERROR)
  target_compile_options(qf_options INTERFACE -Werror)
endif()
if(QF_SANITIZE)
  # g++ 12 sees uninitialized reads in its own <regex> and <functional> once these are instrumented.
  target_compile_options(qf_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_compile_options(qf_options INTERFACE -fsanitize=${QF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(qf_options INTERFACE -fsanitize=${QF_SANITIZE})
endif()
