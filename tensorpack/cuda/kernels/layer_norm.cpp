// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/layer_norm.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

using MaybeTensor = c10::optional<at::Tensor>;

constexpr int kWarp = 32;
constexpr int kThreads = LayerNormPlan::kThreads;
constexpr int kRowsOfBlock = kThreads / kWarp;
constexpr int64_t kMostColumns = 2048;
constexpr int64_t kMostSummedColumns = 1024;  // a block's warps have 32 KiB of sums then
constexpr int kWidth = 4;
// Blocks per multiprocessor.
constexpr int kBlocks = 8;
constexpr int kBackwardBlocks = 2;

// As many columns at a time as all tensors' alignments allow.
int width_for(const std::vector<at::Tensor>& tensors, int64_t columns) {
  if (columns % kWidth != 0) return 1;
  const bool is_aligned = std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    return !tensor.defined() ||
           reinterpret_cast<uintptr_t>(tensor.data_ptr()) % (kWidth * tensor.element_size()) == 0;
  });
  return is_aligned ? kWidth : 1;
}

LaunchShape shape_for(int64_t rows, int blocks, const Launcher& launcher) {
  const int64_t useful = (rows + kRowsOfBlock - 1) / kRowsOfBlock;
  const int64_t most = int64_t{launcher.multiprocessors()} * blocks;
  return {.grid = {static_cast<unsigned>(std::min(useful, most)), 1}, .block = {kThreads, 1}};
}

at::Tensor given(const MaybeTensor& tensor) { return tensor ? *tensor : at::Tensor(); }

c10::optional<c10::ScalarType> type_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return c10::nullopt;
  return tensor.scalar_type();
}

std::vector<int64_t> size_of_statistics(const at::Tensor& input) {
  std::vector<int64_t> size = input.sizes().vec();
  size.back() = 1;
  return size;
}

}  // namespace

bool fits_layer_norm(int64_t columns) { return columns > 0 && columns <= kMostColumns; }
bool fits_layer_norm_sum(int64_t columns) { return columns > 0 && columns <= kMostSummedColumns; }

LayerNormResults layer_norm(const LayerNormArguments& a, const Launcher& launcher) {
  const at::Tensor residual = given(a.residual), weight = given(a.weight), bias = given(a.bias);
  const int64_t columns = a.input.size(-1), rows = a.input.numel() / columns;
  const auto floats = a.input.options().dtype(at::kFloat);
  const at::Tensor y = at::empty(a.size, a.input.options().dtype(a.type));
  const at::Tensor sum = residual.defined() ? at::empty_like(a.input) : at::Tensor();
  const at::Tensor mean = at::empty(size_of_statistics(a.input), floats);
  const at::Tensor rstd = at::empty(size_of_statistics(a.input), floats);
  const int width = width_for({a.input, residual, sum, y, weight, bias}, columns);
  const KernelSource kernel = layer_norm_kernel({.columns = columns,
                                                 .width = width,
                                                 .stream = a.input.scalar_type(),
                                                 .residual = type_of(residual),
                                                 .result = a.type});
  launcher(kernel, shape_for(rows, kBlocks, launcher), data_of(a.input), data_of(residual),
           data_of(sum), data_of(y), data_of(mean), data_of(rstd), data_of(weight), data_of(bias),
           static_cast<float>(a.epsilon), static_cast<long long>(rows));
  return {y, sum, mean, rstd};
}

LayerNormGradients layer_norm_backward(const LayerNormBackwardArguments& a,
                                       const Launcher& launcher) {
  const at::Tensor other = given(a.other), weight = given(a.weight);
  const int64_t columns = a.input.size(-1), rows = a.input.numel() / columns;
  const auto floats = a.input.options().dtype(at::kFloat);
  const at::Tensor result = at::empty_like(a.input);
  const at::Tensor copy =
      a.copy ? at::empty(a.input.sizes(), a.input.options().dtype(*a.copy)) : at::Tensor();
  const at::Tensor weight_grad = at::empty({columns}, floats);
  const at::Tensor bias_grad = at::empty({columns}, floats);
  const at::Tensor sum = a.sum ? at::empty({columns}, floats.dtype(*a.sum)) : at::Tensor();
  const LaunchShape shape = shape_for(rows, kBackwardBlocks, launcher);
  const at::Tensor partial = at::empty({shape.grid[0], columns, 2}, floats);
  const at::Tensor sums = a.sum ? at::empty({shape.grid[0], columns}, floats) : at::Tensor();
  const int width = width_for({a.input, a.grad, other, result, copy, weight}, columns);
  const LayerNormPlan plan{.columns = columns,
                           .width = width,
                           .stream = a.input.scalar_type(),
                           .residual = type_of(other),
                           .result = a.grad.scalar_type(),
                           .weight = weight.defined(),
                           .copy = a.copy,
                           .sum = a.sum};
  const KernelSource main = layer_norm_backward_kernel(plan, kBackwardBlocks);
  const KernelSource finish = layer_norm_finish_kernel(plan);
  launcher.prepare(main);
  launcher.prepare(finish);
  launcher(main, shape, data_of(a.grad), data_of(a.input), data_of(other), data_of(result),
           data_of(copy), data_of(a.mean), data_of(a.rstd), data_of(weight), data_of(partial),
           data_of(sums), static_cast<long long>(rows));
  launcher(
      finish,
      {.grid = {static_cast<unsigned>((columns + kWarp - 1) / kWarp), 1}, .block = {kThreads, 1}},
      data_of(partial), data_of(sums), static_cast<int>(shape.grid[0]), data_of(weight_grad),
      data_of(bias_grad), data_of(sum));
  return {result, weight_grad, bias_grad, copy, a.sum && a.keep_rows ? sum.view({1, -1}) : sum};
}

LayerNormResults layer_norm_unfused(const LayerNormArguments& a) {
  const at::Tensor sum =
      a.residual ? (a.input + *a.residual).to(a.input.scalar_type()) : at::Tensor();
  const at::Tensor input = sum.defined() ? sum : a.input;
  const auto [y, mean, rstd] =
      at::native_layer_norm(input, {input.size(-1)}, a.weight, a.bias, a.epsilon);
  return {y.to(a.type).view(a.size), sum, mean, rstd};
}

LayerNormGradients layer_norm_backward_unfused(const LayerNormBackwardArguments& a) {
  const at::Tensor grad = a.grad.to(a.input.scalar_type()).view(a.input.sizes());
  const bool has_weight = a.weight && a.weight->defined();
  auto [result, weight_grad, bias_grad] =
      at::native_layer_norm_backward(grad, a.input, {a.input.size(-1)}, a.mean, a.rstd, a.weight,
                                     a.weight, {true, has_weight, has_weight});
  if (a.other) result = result + *a.other;
  const at::Tensor copy = a.copy ? result.to(*a.copy) : at::Tensor();
  at::Tensor sum;
  if (a.sum) {
    const at::Tensor summed = copy.defined() ? copy : result;
    sum = summed.view({-1, summed.size(-1)}).sum({0}, a.keep_rows, at::kFloat).to(*a.sum);
  }
  return {result, weight_grad, bias_grad, copy, sum};
}

}  // namespace tensorpack::cuda
