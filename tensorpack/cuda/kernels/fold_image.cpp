// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/fold_image.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/convolution.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

constexpr int kThreads = 256;

// A thread makes all channels of one place.
constexpr const char* kFold = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
fold_image(const T* __restrict__ x, T* __restrict__ y, long long count) {
  const long long t = (long long)blockIdx.x * kThreads + threadIdx.x;
  if (t >= count) return;
  const int j = (int)(t % FW), i = (int)(t / FW % FH);
  const long long n = t / (FW * FH);
  Vector<T, V> folded[F / V] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const int h = 2 * i + k / 2 - PH, w = 2 * j + k % 2 - PW;
    if (h < 0 || h >= H || w < 0 || w >= WIDTH) continue;
    const T* place = x + ((n * H + h) * WIDTH + w) * C;
#pragma unroll
    for (int c = 0; c < C; ++c) folded[(k * C + c) / V].item[(k * C + c) % V] = place[c];
  }
#pragma unroll
  for (int v = 0; v < F / V; ++v) *reinterpret_cast<Vector<T, V>*>(y + t * F + v * V) = folded[v];
}
)cuda";

const ConvolutionGeometry kFoldedGeometry{.stride = {1, 1},
                                          .padding = {0, 0},
                                          .dilation = {1, 1},
                                          .output_padding = {0, 0},
                                          .channels_last = true};

int64_t half_up(int64_t number) { return (number + 1) / 2; }

// [K, C, R, S] as [K, 4 C and zeros, R / 2, S / 2].
at::Tensor fold_weight(const at::Tensor& weight, int64_t channels) {
  const int64_t k = weight.size(0), c = weight.size(1);
  const int64_t r = half_up(weight.size(2)), s = half_up(weight.size(3));
  const at::Tensor even =
      at::constant_pad_nd(weight, {0, 2 * s - weight.size(3), 0, 2 * r - weight.size(2)});
  const at::Tensor folded =
      even.reshape({k, c, r, 2, s, 2}).permute({0, 3, 5, 1, 2, 4}).reshape({k, 4 * c, r, s});
  return in_channels_last(at::constant_pad_nd(folded, {0, 0, 0, 0, 0, channels - 4 * c}));
}

at::Tensor unfold_weight(const at::Tensor& folded, const at::Tensor& like) {
  const int64_t k = like.size(0), c = like.size(1), r = folded.size(2), s = folded.size(3);
  const at::Tensor even = folded.slice(1, 0, 4 * c)
                              .reshape({k, 2, 2, c, r, s})
                              .permute({0, 3, 4, 1, 5, 2})
                              .reshape({k, c, 2 * r, 2 * s});
  return at::empty_like(like).copy_(even.slice(2, 0, like.size(2)).slice(3, 0, like.size(3)));
}

}  // namespace

ImageFold ImageFold::of(const at::IntArrayRef& weight, const std::vector<int64_t>& padding,
                        const at::IntArrayRef& output, c10::ScalarType type) {
  // What tensor cores read at a time.
  const int64_t many = type == c10::kFloat ? 4 : 8;
  return {.padding = padding,
          .size = {output[2] + half_up(weight[2]) - 1, output[3] + half_up(weight[3]) - 1},
          .channels = (4 * weight[1] + many - 1) / many * many};
}

at::Tensor fold_image(const at::Tensor& image_, const ImageFold& fold, const Launcher& launcher) {
  const at::Tensor image = in_channels_last(image_);
  const at::Tensor folded = at::empty({image.size(0), fold.channels, fold.size[0], fold.size[1]},
                                      image.options(), at::MemoryFormat::ChannelsLast);
  const auto count = static_cast<long long>(folded.numel() / fold.channels);
  const KernelSource kernel{
      "fold_image",
      prelude() +
          fmt::format(
              "using T = {};\nconstexpr int kThreads = {}, V = {}, F = {}, FH = {}, FW = {};\n"
              "constexpr int C = {}, H = {}, WIDTH = {}, PH = {}, PW = {};\n",
              kernel_type(image.scalar_type()), kThreads, 16 / image.element_size(), fold.channels,
              fold.size[0], fold.size[1], image.size(1), image.size(2), image.size(3),
              fold.padding[0], fold.padding[1]) +
          kFold};
  const LaunchShape shape{.grid = {static_cast<unsigned>((count + kThreads - 1) / kThreads), 1},
                          .block = {kThreads, 1}};
  launcher(kernel, shape, image.data_ptr(), folded.data_ptr(), count);
  return folded;
}

at::Tensor fold_image_unfused(const at::Tensor& image, const ImageFold& fold) {
  const int64_t n = image.size(0), c = image.size(1), h = fold.size[0], w = fold.size[1];
  // A negative number cuts off what no filter reaches.
  const at::Tensor padded =
      at::constant_pad_nd(image, {fold.padding[1], 2 * w - image.size(3) - fold.padding[1],
                                  fold.padding[0], 2 * h - image.size(2) - fold.padding[0]});
  const at::Tensor folded =
      padded.reshape({n, c, h, 2, w, 2}).permute({0, 3, 5, 1, 2, 4}).reshape({n, 4 * c, h, w});
  return in_channels_last(at::constant_pad_nd(folded, {0, 0, 0, 0, 0, fold.channels - 4 * c}));
}

at::Tensor folded_convolution(const at::Tensor& folded, const at::Tensor& weight) {
  return convolution(folded, fold_weight(weight, folded.size(1)), {}, kFoldedGeometry);
}

at::Tensor folded_weight_gradient(const at::Tensor& grad, const at::Tensor& folded,
                                  const at::Tensor& weight) {
  const at::Tensor like =
      at::empty({weight.size(0), folded.size(1), half_up(weight.size(2)), half_up(weight.size(3))},
                weight.options(), at::MemoryFormat::ChannelsLast);
  const at::Tensor gradient = std::get<1>(convolution_backward(
      in_channels_last(grad), folded, like, kFoldedGeometry, {false, true, false}));
  return unfold_weight(gradient, weight);
}

}  // namespace tensorpack::cuda
