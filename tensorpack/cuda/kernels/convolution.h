// SPDX-License-Identifier: Apache-2.0
// Convolutions whose kernels are chosen by us.
//
// Note [Choosing convolutions]
// cuDNN offers several kernels for a convolution, and which is the fastest has to be tried.
// libtorch tries them anew in every process, each once: that takes seconds, part of them for
// kernels that are compiled and then not taken, and the choice differs from process to process. So
// a pass puts operators in the place of libtorch's which on CUDA (cuda/convolutions.cpp)
//
// - time each kernel several times, so that a slow moment does not decide; of those that are nearly
//   as fast as the fastest cuDNN's first is taken, because what is a little faster alone need not
//   be so beside other work, the less where the pass finds such work (Note [A side stream]); and
// - keep the choice on disk beside compiled kernels: the next process tries nothing, and takes the
//   same.
//
// A function that is recorded or verified runs libtorch's convolutions, and need not be fast: it
// takes cuDNN's first choice (cuda/first_choice.h). Where nothing is to be tried
// (`SessionOptions::deterministic`, `cudnn_candidates = 1`), where cuDNN is not found, or a problem
// is none of those it knows, libtorch's convolution runs.
#pragma once

#include <c10/util/Optional.h>

#include <array>
#include <tuple>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// What a convolution of images is besides its tensors. It has one group.
struct ConvolutionGeometry {
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  bool transposed = false;
  std::vector<int64_t> output_padding = {};  ///< if it is transposed
  bool channels_last = false;                ///< how its results lie
};

/// Of the input, of the weight and of the bias; undefined if not wanted.
using ConvolutionGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// By the operators: on CUDA with kernels that were chosen, elsewhere libtorch's.
at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const c10::optional<at::Tensor>& bias, const ConvolutionGeometry& geometry);
ConvolutionGradients convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                          const at::Tensor& weight,
                                          const ConvolutionGeometry& geometry,
                                          std::array<bool, 3> wanted);

/// libtorch's.
at::Tensor libtorch_convolution(const at::Tensor& input, const at::Tensor& weight,
                                const c10::optional<at::Tensor>& bias,
                                const ConvolutionGeometry& geometry);
ConvolutionGradients libtorch_convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                                   const at::Tensor& weight,
                                                   const ConvolutionGeometry& geometry,
                                                   std::array<bool, 3> wanted);

/// Whether there are such operators for inputs like that.
bool has_chosen_convolution(c10::ScalarType type, size_t dimensions, int64_t groups);

inline at::MemoryFormat format_of(const ConvolutionGeometry& geometry) {
  return geometry.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

/// How a tensor of these sizes lies in that format.
std::vector<int64_t> strides_of(at::IntArrayRef sizes, bool channels_last);

/// The tensor as a result would lie, also where sizes of one leave that open.
at::Tensor laid_out(const at::Tensor& tensor, const ConvolutionGeometry& geometry);

}  // namespace tensorpack::cuda
