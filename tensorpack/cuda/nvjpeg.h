// SPDX-License-Identifier: Apache-2.0
// The few functions of nvJPEG that decode a batch, declared here so that no header of the toolkit
// is needed, and found at run time.
#pragma once

#include <cstddef>
#include <string>

namespace tensorpack::cuda {

// nvjpegImage_t of nvjpeg.h: where decoded pixels go. Interleaved ones use the first place.
struct NvJpegImage {
  unsigned char* channel[4] = {};
  size_t pitch[4] = {};  // bytes from row to row
};

// As in nvjpeg.h: results are 0 for success, handles are pointers.
struct NvJpeg {
  static constexpr int kRgb = 5;  // nvjpegOutputFormat_t: interleaved
  static constexpr int kBgr = 6;
  static constexpr int kGpuHybrid = 2;  // nvjpegBackend_t
  static constexpr int kHardware = 3;

  int (*property)(int which, int* value) = nullptr;
  int (*create)(int backend, void* device_allocator, void* pinned_allocator, unsigned flags,
                void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  int (*create_state)(void* handle, void** state) = nullptr;
  int (*destroy_state)(void* state) = nullptr;
  int (*image_info)(void* handle, const unsigned char* bytes, size_t length, int* components,
                    int* subsampling, int* widths, int* heights) = nullptr;
  int (*begin_batches)(void* handle, void* state, int size, int most_threads,
                       int output_format) = nullptr;
  int (*decode_batch)(void* handle, void* state, const unsigned char* const* bytes,
                      const size_t* lengths, NvJpegImage* destinations, void* stream) = nullptr;
};

/// Throws Error if the library, or a function in it, is not there.
const NvJpeg& nvjpeg();

/// What a result other than 0 means.
std::string nvjpeg_error(int result);

}  // namespace tensorpack::cuda
