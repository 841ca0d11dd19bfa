// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/convolution.h"

#include <ATen/ATen.h>
#include <c10/util/strides.h>
#include <torch/library.h>

#include "tensorpack/utils/find_operator.h"

namespace tensorpack::cuda {
namespace {

using Convolution = at::Tensor(const at::Tensor&, const at::Tensor&,
                               const c10::optional<at::Tensor>&, at::IntArrayRef, at::IntArrayRef,
                               at::IntArrayRef, bool, at::IntArrayRef, bool);
using ConvolutionBackward = ConvolutionGradients(const at::Tensor&, const at::Tensor&,
                                                 const at::Tensor&, at::IntArrayRef,
                                                 at::IntArrayRef, at::IntArrayRef, bool,
                                                 at::IntArrayRef, std::array<bool, 3>, bool, bool);

}  // namespace

at::Tensor convolution(const at::Tensor& input, const at::Tensor& weight,
                       const c10::optional<at::Tensor>& bias, const ConvolutionGeometry& geometry) {
  static const auto op = find_operator<Convolution>("tensorpack::convolution");
  return op.call(input, weight, bias, geometry.stride, geometry.padding, geometry.dilation,
                 geometry.transposed, geometry.output_padding, geometry.channels_last);
}

ConvolutionGradients convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                          const at::Tensor& weight,
                                          const ConvolutionGeometry& geometry,
                                          std::array<bool, 3> wanted) {
  static const auto op = find_operator<ConvolutionBackward>("tensorpack::convolution_backward");
  return op.call(grad, input, weight, geometry.stride, geometry.padding, geometry.dilation,
                 geometry.transposed, geometry.output_padding, wanted, geometry.channels_last,
                 /*beside=*/false);
}

at::Tensor libtorch_convolution(const at::Tensor& input, const at::Tensor& weight,
                                const c10::optional<at::Tensor>& bias,
                                const ConvolutionGeometry& geometry) {
  return laid_out(
      at::convolution(input, weight, bias, geometry.stride, geometry.padding, geometry.dilation,
                      geometry.transposed, geometry.output_padding, /*groups=*/1),
      geometry);
}

ConvolutionGradients libtorch_convolution_backward(const at::Tensor& grad, const at::Tensor& input,
                                                   const at::Tensor& weight,
                                                   const ConvolutionGeometry& geometry,
                                                   std::array<bool, 3> wanted) {
  auto [of_input, of_weight, of_bias] = at::convolution_backward(
      grad, input, weight, at::IntArrayRef({grad.size(1)}), geometry.stride, geometry.padding,
      geometry.dilation, geometry.transposed, geometry.output_padding, /*groups=*/1, wanted);
  if (wanted[0]) of_input = laid_out(of_input, geometry);
  if (wanted[1]) of_weight = laid_out(of_weight, geometry);
  return {of_input, of_weight, of_bias};
}

bool has_chosen_convolution(c10::ScalarType type, size_t dimensions, int64_t groups) {
  return (type == c10::kFloat || type == c10::kHalf || type == c10::kBFloat16) && dimensions == 4 &&
         groups == 1;
}

std::vector<int64_t> strides_of(at::IntArrayRef sizes, bool channels_last) {
  if (channels_last) return c10::get_channels_last_strides_2d(sizes);
  const auto strides = c10::contiguous_strides(sizes);
  return {strides.begin(), strides.end()};
}

at::Tensor laid_out(const at::Tensor& tensor, const ConvolutionGeometry& geometry) {
  const at::Tensor dense = tensor.contiguous(format_of(geometry));
  const std::vector<int64_t> strides = strides_of(tensor.sizes(), geometry.channels_last);
  return dense.strides() == strides ? dense : dense.as_strided(tensor.sizes(), strides);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "convolution(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, "
      "int[] dilation, bool transposed, int[] output_padding, bool channels_last) -> Tensor");
  library.def(
      "convolution_backward(Tensor grad, Tensor input, Tensor weight, int[] stride, int[] padding, "
      "int[] dilation, bool transposed, int[] output_padding, bool[3] output_mask, "
      "bool channels_last, bool beside) -> (Tensor, Tensor, Tensor)");
}

// What they do on CUDA is in cuda/convolutions.cpp.
TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("convolution", [](const at::Tensor& input, const at::Tensor& weight,
                                 const c10::optional<at::Tensor>& bias, at::IntArrayRef stride,
                                 at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
                                 at::IntArrayRef output_padding, bool channels_last) {
    return libtorch_convolution(input, weight, bias,
                                {stride.vec(), padding.vec(), dilation.vec(), transposed,
                                 output_padding.vec(), channels_last});
  });
  library.impl(
      "convolution_backward",
      [](const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
         at::IntArrayRef stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool transposed,
         at::IntArrayRef output_padding, std::array<bool, 3> wanted, bool channels_last, bool) {
        return libtorch_convolution_backward(grad, input, weight,
                                             {stride.vec(), padding.vec(), dilation.vec(),
                                              transposed, output_padding.vec(), channels_last},
                                             wanted);
      });
}

}  // namespace tensorpack::cuda
