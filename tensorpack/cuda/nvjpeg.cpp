// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/nvjpeg.h"

#include <fmt/format.h>

#include <array>

#include "tensorpack/cuda/shared_library.h"

namespace tensorpack::cuda {
namespace {

NvJpeg open_nvjpeg() {
  const SharedLibrary library("DecodingInput", "nvJPEG", places_of("nvjpeg"));
  NvJpeg nvjpeg;
  library.find(nvjpeg.property, "nvjpegGetProperty");
  library.find(nvjpeg.create, "nvjpegCreateEx");
  library.find(nvjpeg.destroy, "nvjpegDestroy");
  library.find(nvjpeg.create_state, "nvjpegJpegStateCreate");
  library.find(nvjpeg.destroy_state, "nvjpegJpegStateDestroy");
  library.find(nvjpeg.image_info, "nvjpegGetImageInfo");
  library.find(nvjpeg.begin_batches, "nvjpegDecodeBatchedInitialize");
  library.find(nvjpeg.decode_batch, "nvjpegDecodeBatched");
  return nvjpeg;
}

}  // namespace

const NvJpeg& nvjpeg() {
  static const NvJpeg opened = open_nvjpeg();
  return opened;
}

std::string nvjpeg_error(int result) {
  // nvjpegStatus_t.
  constexpr std::array kNames = {"success",
                                 "not initialized",
                                 "invalid parameter",
                                 "bad JPEG",
                                 "JPEG not supported",
                                 "allocator failure",
                                 "execution failed",
                                 "architecture mismatch",
                                 "internal error",
                                 "implementation not supported",
                                 "incomplete bitstream"};
  const bool is_known = result >= 0 && static_cast<size_t>(result) < kNames.size();
  return is_known ? kNames[result] : fmt::format("error {}", result);
}

}  // namespace tensorpack::cuda
