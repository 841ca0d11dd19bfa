# With TENSORPACK_UNITY=N, up to N files of a folder are compiled as one, because every file instantiates the templates of libtorch's
# headers that it uses, with or without a precompiled header. A large N takes the least time from nothing, a small one leaves little to
# compile after an edit (benchmarks/RESULTS.md, "Compiling").

# Of a program: all its files, whatever folder they are in.
function(tensorpack_unity target)
  if(TENSORPACK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TENSORPACK_UNITY})
  endif()
endfunction()

# Of the library: only files of one folder, so that the short names of their own functions rarely meet.
if(NOT TENSORPACK_UNITY)
  return()
endif()
# They call different things by the same name.
set(compiled_alone "^cuda/[a-z_]+.cpp|^cuda/kernels/|^distributed/detail/rendezvous.cpp")
get_target_property(sources tensorpack SOURCES)
foreach(source IN LISTS sources)
  cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" OUTPUT_VARIABLE name)
  if(name MATCHES "${compiled_alone}")
    continue()  # what is in no group is a group of its own
  endif()
  cmake_path(GET name PARENT_PATH folder)
  string(REGEX REPLACE "/detail$" "" folder "${folder}")
  string(MAKE_C_IDENTIFIER "${folder}" folder)
  math(EXPR part "0${files_in_${folder}} / ${TENSORPACK_UNITY}")
  math(EXPR files_in_${folder} "0${files_in_${folder}} + 1")
  set_source_files_properties("${source}" TARGET_DIRECTORY tensorpack PROPERTIES UNITY_GROUP "${folder}_${part}")
endforeach()
set_target_properties(tensorpack PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
# It takes a source for a header, in which a class with parts from an unnamed namespace would be wrong.
target_compile_options(tensorpack PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
