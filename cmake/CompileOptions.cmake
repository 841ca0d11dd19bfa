# What every target of this project is compiled with; nothing here leaks to consumers.
add_library(tensorpack_build_flags INTERFACE)
target_compile_features(tensorpack_build_flags INTERFACE cxx_std_20)
target_compile_options(tensorpack_build_flags INTERFACE -Wall -Wextra -Wpedantic -Werror)
# g++ 12 warns of overlapping copies inside std::string that cannot happen (GCC bug 105651).
target_compile_options(tensorpack_build_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
foreach(sanitizer IN LISTS TENSORPACK_SANITIZE)
  target_compile_options(tensorpack_build_flags INTERFACE -fsanitize=${sanitizer} -fno-omit-frame-pointer)
  target_link_options(tensorpack_build_flags INTERFACE -fsanitize=${sanitizer})
endforeach()

find_program(TENSORPACK_CCACHE ccache)
if(TENSORPACK_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${TENSORPACK_CCACHE})
endif()
find_program(TENSORPACK_LLD ld.lld)
if(TENSORPACK_LLD)
  add_link_options(-fuse-ld=lld)
endif()
