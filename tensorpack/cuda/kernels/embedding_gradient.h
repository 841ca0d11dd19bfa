// SPDX-License-Identifier: Apache-2.0
// The gradient of words' vectors that another gradient is added to, as the last layer has one where
// the vectors serve as its weights, too.
//
//   tensorpack::embedding_gradient
#pragma once

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct EmbeddingGradientArguments {
  at::Tensor grad;   // of the vectors of each word, [words..., features] in float, contiguous
  at::Tensor words;  // int64 or int32, contiguous
  at::Tensor other;  // [vocabulary, features] in any type, contiguous
  int64_t padding_idx = -1;  // a word whose gradient is not added
};

/// True if a warp can keep a vector in its registers, and words have 32 bits.
bool fits_embedding_gradient(int64_t vocabulary, int64_t features);

/// By kernels of ours, and libtorch's sort: other + the gradient of the vectors, in float. What
/// words have in common is added up in their order.
at::Tensor embedding_gradient(const EmbeddingGradientArguments& arguments,
                              const Launcher& launcher);

/// By libtorch's operators, on any device.
at::Tensor embedding_gradient_unfused(const EmbeddingGradientArguments& arguments);

}  // namespace tensorpack::cuda
