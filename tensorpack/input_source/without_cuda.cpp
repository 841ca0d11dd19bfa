// SPDX-License-Identifier: Apache-2.0
// What stands in for cuda/ when libtorch has no CUDA.
#include "tensorpack/input_source/detail/batch_decoder.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

std::unique_ptr<BatchDecoder> make_cuda_decoder(const ImageBatchOptions&) {
  throw make_error("DecodingInput",
                   "images are to be decoded on a GPU, but this library was built without CUDA. "
                   "Build it with a CUDA libtorch (cmake --preset cuda), or use image_batch().");
}

}  // namespace tensorpack::detail
