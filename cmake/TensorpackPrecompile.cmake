# tensorpack_precompile(<target> [<target>...])
#
# Precompiles tensorpack/tensorpack.h for the targets, which makes compiling a file that includes it several times faster. The
# targets share one precompiled header, and so must be compiled with the same options and definitions.
function(tensorpack_precompile target)
  target_precompile_headers(${target} PRIVATE <tensorpack/tensorpack.h>)
  foreach(other IN LISTS ARGN)
    target_precompile_headers(${other} REUSE_FROM ${target})
  endforeach()
endfunction()
