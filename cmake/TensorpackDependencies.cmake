# What the library stands on. Used by the build and, installed, by the package file, so that both look in the same way.
#
# Gives   tensorpack::dependencies       libtorch, fmt, spdlog, nlohmann-json, in the order their headers must be searched
#         tensorpack::<part>             for each optional part that was found: OPENCV JPEG LMDB HDF5 ZEROMQ ZLIB CUDA
#         TENSORPACK_HAS_<part>          whether the part is in use
#         TENSORPACK_MISSING             what is needed and was not found
#
# Each part is ruled by TENSORPACK_WITH_<part>: ON (it must be there), OFF, or AUTO (used when found).
set(TENSORPACK_MISSING "")

find_package(Threads QUIET)
find_package(Torch QUIET)
if(NOT Torch_FOUND)
  list(APPEND TENSORPACK_MISSING "libtorch")
endif()

# Finds a package, or else its headers below TENSORPACK_DEPS_DIR (see tools/bundle_deps).
macro(tensorpack_find_headers package target header)
  find_package(${package} QUIET)
  if(NOT TARGET ${target} AND TENSORPACK_DEPS_DIR AND EXISTS "${TENSORPACK_DEPS_DIR}/include/${header}")
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} INTERFACE "${TENSORPACK_DEPS_DIR}/include")
    target_compile_definitions(${target} INTERFACE ${ARGN})
    set(${package}_VERSION "from ${TENSORPACK_DEPS_DIR}")
  endif()
endmacro()

tensorpack_find_headers(fmt fmt::fmt fmt/core.h FMT_HEADER_ONLY)
tensorpack_find_headers(spdlog spdlog::spdlog spdlog/spdlog.h SPDLOG_FMT_EXTERNAL)
tensorpack_find_headers(nlohmann_json nlohmann_json::nlohmann_json nlohmann/json.hpp)
foreach(target fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json Threads::Threads)
  if(NOT TARGET ${target})
    string(REGEX REPLACE ".*::" "" name ${target})
    list(APPEND TENSORPACK_MISSING ${name})
  endif()
endforeach()

if(NOT TENSORPACK_MISSING AND NOT TARGET tensorpack::dependencies)
  add_library(tensorpack::dependencies INTERFACE IMPORTED GLOBAL)
  # stdc++ comes first: libtorch 2.x exports parts of std::filesystem that crash when called.
  target_link_libraries(tensorpack::dependencies INTERFACE stdc++
    fmt::fmt spdlog::spdlog nlohmann_json::nlohmann_json Threads::Threads ${TORCH_LIBRARIES})
  # libtorch 2.x ships an fmt of its own. Its folder would win over the compiler's default one, where
  # a packaged fmt lies and which cannot be named earlier: a link to that fmt can.
  foreach(pair fmt::fmt=fmt spdlog::spdlog=spdlog nlohmann_json::nlohmann_json=nlohmann)
    string(REGEX MATCH "^(.*)=(.*)$" _ ${pair})
    set(folder ${CMAKE_MATCH_2})
    get_target_property(ours ${CMAKE_MATCH_1} INTERFACE_INCLUDE_DIRECTORIES)
    foreach(theirs IN LISTS TORCH_INCLUDE_DIRS)
      if(NOT theirs STREQUAL ours AND EXISTS "${theirs}/${folder}" AND EXISTS "${ours}/${folder}")
        set(first "${CMAKE_BINARY_DIR}/include_first")
        file(MAKE_DIRECTORY "${first}")
        file(CREATE_LINK "${ours}/${folder}" "${first}/${folder}" SYMBOLIC)
        set_property(TARGET tensorpack::dependencies PROPERTY INTERFACE_INCLUDE_DIRECTORIES "${first}")
      endif()
    endforeach()
  endforeach()
endif()

# Makes tensorpack::<part> of a header and libraries; `a|b` are two names of one library.
# OpenCV and HDF5 have package files, but Debian keeps them apart from the few libraries we need.
function(tensorpack_find_libraries part header)
  find_path(TENSORPACK_${part}_INCLUDE_DIR ${header} PATH_SUFFIXES opencv4 hdf5/serial)
  mark_as_advanced(TENSORPACK_${part}_INCLUDE_DIR)
  set(found ${TENSORPACK_${part}_INCLUDE_DIR})
  foreach(library IN LISTS ARGN)
    string(REPLACE "|" ";" names ${library})
    list(GET names 0 name)
    find_library(TENSORPACK_${name}_LIBRARY NAMES ${names})
    mark_as_advanced(TENSORPACK_${name}_LIBRARY)
    if(NOT TENSORPACK_${name}_LIBRARY)
      set(found FALSE)
    endif()
    list(APPEND libraries ${TENSORPACK_${name}_LIBRARY})
  endforeach()
  if(found AND NOT TARGET tensorpack::${part})
    add_library(tensorpack::${part} INTERFACE IMPORTED GLOBAL)
    target_include_directories(tensorpack::${part} INTERFACE ${TENSORPACK_${part}_INCLUDE_DIR})
    # A program that uses nothing of the part is not made to load its libraries.
    target_link_libraries(tensorpack::${part} INTERFACE
      "-Wl,--push-state,--as-needed" ${libraries} "-Wl,--pop-state")
  endif()
endfunction()

# Sets TENSORPACK_HAS_<part> from what was asked for and what was found.
macro(tensorpack_decide part)
  set(TENSORPACK_HAS_${part} OFF)
  if(TENSORPACK_WITH_${part} AND TARGET tensorpack::${part})
    set(TENSORPACK_HAS_${part} ON)
  elseif(TENSORPACK_WITH_${part} AND NOT TENSORPACK_WITH_${part} STREQUAL "AUTO")
    list(APPEND TENSORPACK_MISSING "${part} (asked for by TENSORPACK_WITH_${part}) ${TENSORPACK_WHY_NO_${part}}")
  endif()
endmacro()

# Only libjpeg-turbo decodes parts of images.
find_path(TENSORPACK_JPEG_INCLUDE_DIR jpeglib.h)
if(TENSORPACK_JPEG_INCLUDE_DIR)
  file(STRINGS "${TENSORPACK_JPEG_INCLUDE_DIR}/jpeglib.h" turbo REGEX jpeg_crop_scanline)
  if(NOT turbo)
    set(TENSORPACK_WITH_JPEG OFF)
  endif()
endif()

set(TENSORPACK_PARTS OPENCV JPEG LMDB HDF5 ZEROMQ ZLIB CUDA)
tensorpack_find_libraries(OPENCV opencv2/imgcodecs.hpp opencv_imgcodecs opencv_imgproc opencv_core)
tensorpack_find_libraries(JPEG jpeglib.h jpeg)
tensorpack_find_libraries(LMDB lmdb.h lmdb)
tensorpack_find_libraries(HDF5 hdf5.h hdf5_serial|hdf5)
tensorpack_find_libraries(ZEROMQ zmq.hpp zmq)
find_package(ZLIB QUIET)
if(TARGET ZLIB::ZLIB AND NOT TARGET tensorpack::ZLIB)
  add_library(tensorpack::ZLIB INTERFACE IMPORTED GLOBAL)
  target_link_libraries(tensorpack::ZLIB INTERFACE ZLIB::ZLIB)
endif()

# A step that is captured keeps pinned memory in a pool of its own, which libtorch came to know late.
set(TENSORPACK_WHY_NO_CUDA "")
if(TARGET torch_cuda AND NOT TARGET tensorpack::CUDA)
  find_file(TENSORPACK_HOST_ALLOCATOR ATen/core/CachingHostAllocator.h PATHS ${TORCH_INCLUDE_DIRS} NO_DEFAULT_PATH)
  mark_as_advanced(TENSORPACK_HOST_ALLOCATOR)
  if(TENSORPACK_HOST_ALLOCATOR)
    file(STRINGS "${TENSORPACK_HOST_ALLOCATOR}" pools REGEX end_allocate_to_pool)
  endif()
  if(pools)
    add_library(tensorpack::CUDA INTERFACE IMPORTED GLOBAL)  # has nothing to link: libtorch brings torch_cuda
  else()
    set(TENSORPACK_WHY_NO_CUDA "(it takes libtorch 2.11 or newer, and this is ${Torch_VERSION})")
  endif()
endif()

foreach(part IN LISTS TENSORPACK_PARTS)
  tensorpack_decide(${part})
endforeach()
