// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// Where one of the images to be resampled lies, and which part of it is taken.
struct ImageToResample {
  int64_t offset = 0;  ///< of its first pixel, in bytes
  int64_t width = 0;   ///< pixels in a row
  int64_t left = 0;
  int64_t top = 0;
  int64_t part_width = 0;
  int64_t part_height = 0;
  int64_t mirror = 0;  ///< or 1
};

struct ResampleImages {
  at::Tensor pixels = {};  ///< uint8, three bytes for each
  std::vector<ImageToResample> images = {};
  /// A number is byte * scale + bias.
  std::array<float, 3> scale = {1, 1, 1};
  std::array<float, 3> bias = {0, 0, 0};
  bool antialias = true;
};

/// Writes the parts to `batch`, uint8 or float [n, 3, height, width] in any layout, as
/// dataflow/image/detail/resample.h does on the CPU.
void resample_images(const ResampleImages& arguments, const at::Tensor& batch,
                     const Launcher& launcher);

}  // namespace tensorpack::cuda
