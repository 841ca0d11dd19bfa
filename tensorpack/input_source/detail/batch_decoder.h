// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "tensorpack/dataflow/image/detail/packed_images.h"

namespace tensorpack::detail {

/// Makes batches of packed images, as the options of image_batch() say. One thread uses it.
class BatchDecoder {
 public:
  virtual ~BatchDecoder() = default;

  /// [n, 3, height, width]. On CUDA it is made on the current device, in the order of its current
  /// stream; the images are not needed any more when this returns. Throws Error that names the
  /// image that cannot be decoded.
  virtual at::Tensor decode(const std::vector<PackedImage>& images) = 0;
};

std::unique_ptr<BatchDecoder> make_cpu_decoder(const ImageBatchOptions& options);

/// Throws Error if this build or this machine has not what that takes.
std::unique_ptr<BatchDecoder> make_cuda_decoder(const ImageBatchOptions& options);

}  // namespace tensorpack::detail
