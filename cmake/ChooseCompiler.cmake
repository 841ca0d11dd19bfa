# Takes clang where it is installed and neither CMAKE_CXX_COMPILER nor CXX is set: it compiles a file that uses libtorch in half of
# g++'s time (benchmarks/RESULTS.md, "Compiling"). Both link with a library that the other built.
if(DEFINED CMAKE_CXX_COMPILER OR DEFINED ENV{CXX})
  return()
endif()
find_program(TENSORPACK_CLANG clang++)
mark_as_advanced(TENSORPACK_CLANG)
if(TENSORPACK_CLANG)
  set(CMAKE_CXX_COMPILER "${TENSORPACK_CLANG}")
endif()
