# What every target of this project is compiled with; nothing here leaks to consumers.
add_library(tensorpack_build_flags INTERFACE)
target_compile_features(tensorpack_build_flags INTERFACE cxx_std_20)
set(warnings -Wall -Wextra -Wpedantic)
if(TENSORPACK_WERROR)
  list(APPEND warnings -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 and 13 warn of overlapping or outlying copies inside std::string that cannot happen
  # (GCC bugs 105651, 105329).
  list(APPEND warnings -Wno-restrict -Wno-error=array-bounds)
endif()
if(TENSORPACK_SANITIZE)
  # Instrumented code looks to g++ 13 as if std::regex read what it has not set (GCC bug 105562).
  list(APPEND warnings -Wno-error=maybe-uninitialized)
endif()
target_compile_options(tensorpack_build_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
# Kernels give the same bits whatever compiles them: where they multiply and add at once, they say so.
target_compile_options(tensorpack_build_flags INTERFACE -ffp-contract=off)
# Without errno, a loop over square roots can use vector instructions; with four or five arrays it also needs more checks that they
# do not overlap than clang and g++ make by default.
target_compile_options(tensorpack_build_flags INTERFACE
  -fno-math-errno "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=vect-max-version-for-alias-checks=30>"
  "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-mllvm -runtime-memory-check-threshold=64>")
foreach(sanitizer IN LISTS TENSORPACK_SANITIZE)
  target_compile_options(tensorpack_build_flags INTERFACE
    -fsanitize=${sanitizer} -fno-omit-frame-pointer)
  target_link_options(tensorpack_build_flags INTERFACE -fsanitize=${sanitizer})
endforeach()

# A static library names all it may need; a program should load only what it uses.
target_link_options(tensorpack_build_flags INTERFACE LINKER:--as-needed)

find_program(TENSORPACK_CCACHE ccache)
if(TENSORPACK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the sloppiness ccache refuses files that use a precompiled header; and clang's must not name its time.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TENSORPACK_CCACHE})
  target_compile_options(tensorpack_build_flags INTERFACE
    "$<$<COMPILE_LANG_AND_ID:CXX,Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endif()
find_program(TENSORPACK_LLD ld.lld)
if(TENSORPACK_LLD)
  target_link_options(tensorpack_build_flags INTERFACE -fuse-ld=lld)
endif()
mark_as_advanced(TENSORPACK_CCACHE TENSORPACK_LLD)
