// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/batch_norm.h"

#include <ATen/ATen.h>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

// Blocks per multiprocessor, as measured on an H200: 4 cost 3 to 24 % more, 1 up to 40 %.
constexpr int kBlocks = 2;

bool is_given(const MaybeTensor& tensor) { return tensor.has_value() && tensor->defined(); }

// The memory in which blocks leave their sums.
at::Tensor partial_sums(const ColumnPlan& plan, const LaunchShape& shape, const at::Tensor& like) {
  return at::empty({shape.grid[1], plan.columns, 2}, like.options().dtype(at::kFloat));
}

// Channels whose bits make a byte: those that one load has.
int64_t channels_of_byte(c10::ScalarType type) {
  return kLargestLoad / static_cast<int64_t>(c10::elementSize(type));
}

// Where whole loads are possible: a byte of bits belongs to one.
at::Tensor aligned(const at::Tensor& tensor) {
  const bool is_aligned = reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kLargestLoad == 0;
  return is_aligned ? tensor : tensor.clone();
}

at::Tensor empty_bits(const at::Tensor& like) {
  return at::empty({relu_bits_size(like.scalar_type(), like.numel())},
                   like.options().dtype(at::kByte));
}

// The pass that normalizes, adds the residual and makes relu of it.
struct Apply {
  explicit Apply(const BatchNormArguments& a)
      : input(a.keep_bits ? aligned(a.input) : a.input),
        residual(is_given(a.residual) ? laid_out_like(a.input, *a.residual) : at::Tensor()),
        y(at::empty_strided(a.input.sizes(), a.input.strides(), a.input.options())) {
    if (a.keep_bits && residual.defined()) residual = aligned(residual);
    if (a.keep_bits) bits = empty_bits(a.input);
    if (a.residual_statistics) of_residual = *a.residual_statistics;
    plan = plan_columns({input, y, residual.defined() ? residual : y});
    TP_ASSERT(!a.keep_bits || plan.width == channels_of_byte(plan.type));
    kernel = batch_norm_apply(plan, {.residual = residual.defined(),
                                     .normalizes_residual = a.residual_statistics.has_value(),
                                     .relu = a.relu,
                                     .bits = a.keep_bits});
  }

  void launch(const BatchNormArguments& a, const BatchNormStatistics& statistics,
              const Launcher& launcher) const {
    launcher(kernel, plan.shape(launcher.multiprocessors(), kBlocks), data_of<void>(input),
             data_of<void>(residual), data_of<void>(y), data_of<void>(bits),
             static_cast<long long>(plan.rows), static_cast<int>(plan.columns),
             data_of<float>(statistics.mean), data_of<float>(statistics.invstd),
             data_of<float>(a.weight), data_of<float>(a.bias), data_of<float>(of_residual.mean),
             data_of<float>(of_residual.invstd), data_of<float>(a.residual_weight),
             data_of<float>(a.residual_bias));
  }

  at::Tensor input;
  at::Tensor residual;
  BatchNormStatistics of_residual = {};
  at::Tensor y;
  at::Tensor bits = {};
  ColumnPlan plan = {};
  KernelSource kernel = {};
};

// The pass before it, which finds the statistics.
BatchNormStatistics launch_statistics(const at::Tensor& input, const ColumnPlan& plan,
                                      const BatchNormArguments& a, const at::Tensor& counters,
                                      const Launcher& launcher) {
  const auto floats = input.options().dtype(at::kFloat);
  const BatchNormStatistics found{at::empty({input.size(1)}, floats),
                                  at::empty({input.size(1)}, floats)};
  const KernelSource kernel = batch_norm_statistics(plan);
  launcher.prepare(kernel);
  const LaunchShape sums = plan.shape_of_sums(launcher.multiprocessors(), kBlocks);
  const at::Tensor partial = partial_sums(plan, sums, input);
  launcher(kernel, sums, data_of<void>(input), static_cast<long long>(plan.rows),
           static_cast<int>(plan.columns), data_of<float>(found.mean), data_of<float>(found.invstd),
           data_of<float>(a.running_mean), data_of<float>(a.running_var),
           static_cast<float>(a.momentum), static_cast<float>(a.epsilon), data_of<void>(partial),
           data_of<void>(counters));
  return found;
}

// The first pass of the backward pass, which sums, and writes the gradient where relu let it pass
// if it takes more than the one that is given to tell: it is written once rather than read twice.
struct BackwardSums {
  explicit BackwardSums(const BatchNormBackwardArguments& a) {
    const bool has_bits = a.mask == ReluMask::kOfBits;
    const auto prepared = [&](const at::Tensor& tensor) {
      const at::Tensor laid_out = laid_out_like(a.input, tensor);
      return has_bits ? aligned(laid_out) : laid_out;
    };
    input = prepared(a.input);
    grad = prepared(a.grad);
    if (is_given(a.other)) other = prepared(*a.other);
    if (a.mask == ReluMask::kOfOutput) output = laid_out_like(a.input, *a.output);
    if (has_bits) bits = *a.output;
    const auto empty = [&] {
      return at::empty_strided(a.input.sizes(), a.input.strides(), a.input.options());
    };
    const bool keeps_masked = a.keeps == NormKeeps::kMasked;
    if (keeps_masked || other.defined() || has_bits || output.defined()) masked = empty();
    if (a.keeps == NormKeeps::kOutput) {
      TP_ASSERT(a.mask == ReluMask::kOfInput);
      output_again = empty();
    }
    const auto floats = a.input.options().dtype(at::kFloat);
    weight_grad = at::empty({a.input.size(1)}, floats);
    bias_grad = at::empty({a.input.size(1)}, floats);
    std::vector<at::Tensor> matrices = {input, grad};
    for (const at::Tensor& tensor : {other, output, masked, output_again}) {
      if (tensor.defined()) matrices.push_back(tensor);
    }
    plan = plan_columns(matrices);
    TP_ASSERT(!has_bits || plan.width == channels_of_byte(plan.type));
    kernel =
        batch_norm_backward_sums(plan, a.mask, other.defined(),
                                 {.masked = masked.defined(), .output = output_again.defined()});
  }

  void launch(const BatchNormBackwardArguments& a, const at::Tensor& counters,
              const Launcher& launcher) const {
    launcher.prepare(kernel);
    const LaunchShape shape = plan.shape_of_sums(launcher.multiprocessors(), kBlocks);
    const at::Tensor partial = partial_sums(plan, shape, input);
    launcher(kernel, shape, data_of<void>(input), data_of<void>(grad), data_of<void>(other),
             data_of<void>(output), data_of<void>(bits), data_of<void>(masked),
             data_of<void>(output_again), static_cast<long long>(plan.rows),
             static_cast<int>(plan.columns), data_of<float>(a.mean), data_of<float>(a.invstd),
             data_of<float>(a.weight), data_of<float>(a.bias), data_of<float>(weight_grad),
             data_of<float>(bias_grad), data_of<void>(partial), data_of<void>(counters));
  }

  at::Tensor input, grad, other, output, bits;
  at::Tensor masked, output_again, weight_grad, bias_grad;
  ColumnPlan plan = {};
  KernelSource kernel = {};
};

at::Tensor per_channel(const at::Tensor& values, const at::Tensor& input) {
  return input.dim() == 4 ? values.view({1, -1, 1, 1}) : values;
}

// The elements in the order of a matrix of columns, and back.
at::Tensor as_rows(const at::Tensor& tensor) {
  return (tensor.dim() == 4 ? tensor.permute({0, 2, 3, 1}) : tensor).reshape({-1});
}
at::Tensor from_rows(const at::Tensor& rows, const at::Tensor& like) {
  if (like.dim() != 4) return rows.view(like.sizes());
  return rows.view({like.size(0), like.size(2), like.size(3), like.size(1)}).permute({0, 3, 1, 2});
}

// What the bits of a byte stand for.
at::Tensor bit_values(c10::ScalarType type, c10::Device device) {
  const at::Tensor places =
      at::arange(channels_of_byte(type), at::TensorOptions(device).dtype(at::kByte));
  return at::bitwise_left_shift(at::ones_like(places), places);
}

at::Tensor relu_bits(const at::Tensor& output) {
  const at::Tensor values = bit_values(output.scalar_type(), output.device());
  const at::Tensor passed = as_rows(output.le(0).logical_not()).to(at::kByte);
  return passed.view({-1, values.numel()}).mul(values).sum(1, /*keepdim=*/false, at::kByte);
}

// The bits are those of an output of this type.
at::Tensor where_bits_are_set(const at::Tensor& bits, const at::Tensor& grad,
                              c10::ScalarType type) {
  const at::Tensor passed = bits.view({-1, 1}).bitwise_and(bit_values(type, bits.device())).ne(0);
  return at::where(from_rows(passed, grad), grad, at::zeros_like(grad));
}

// In float, as a kernel does.
at::Tensor normalized(const at::Tensor& input, const BatchNormStatistics& statistics,
                      const MaybeTensor& weight, const MaybeTensor& bias) {
  at::Tensor y = (input.to(at::kFloat) - per_channel(statistics.mean, input)) *
                 per_channel(statistics.invstd, input);
  if (is_given(weight)) y = y * per_channel(*weight, input);
  if (is_given(bias)) y = y + per_channel(*bias, input);
  return y;
}

// Added in float if the residual is yet to be normalised.
at::Tensor with_residual(const at::Tensor& y, const BatchNormArguments& a) {
  if (!is_given(a.residual)) return y;
  const at::Tensor residual =
      a.residual_statistics
          ? normalized(*a.residual, *a.residual_statistics, a.residual_weight, a.residual_bias)
          : *a.residual;
  return y + residual;
}

}  // namespace

bool has_relu_bits(c10::ScalarType type, int64_t channels) {
  return channels % channels_of_byte(type) == 0;
}

int64_t relu_bits_size(c10::ScalarType type, int64_t elements) {
  return elements / channels_of_byte(type);
}

BatchNormResults batch_norm_act(const BatchNormArguments& a, const at::Tensor& counters,
                                const Launcher& launcher) {
  const Apply apply(a);
  launcher.prepare(apply.kernel);  // before anything is changed
  const BatchNormStatistics statistics =
      launch_statistics(apply.input, apply.plan, a, counters, launcher);
  apply.launch(a, statistics, launcher);
  return {apply.y, statistics.mean, statistics.invstd, apply.bits};
}

BatchNormGradients batch_norm_act_backward(const BatchNormBackwardArguments& a,
                                           const at::Tensor& counters, const Launcher& launcher) {
  const BackwardSums sums(a);
  const at::Tensor result =
      at::empty_strided(a.input.sizes(), a.input.strides(), a.input.options());
  const ColumnPlan& plan = sums.plan;
  const KernelSource kernel =
      batch_norm_backward_result(plan, sums.masked.defined() ? ReluMask::kNone : a.mask);
  launcher.prepare(kernel);
  sums.launch(a, counters, launcher);
  launcher(kernel, plan.shape(launcher.multiprocessors(), kBlocks), data_of<void>(sums.input),
           data_of<void>(sums.masked.defined() ? sums.masked : sums.grad), data_of<void>(result),
           static_cast<long long>(plan.rows), static_cast<int>(plan.columns),
           data_of<float>(a.mean), data_of<float>(a.invstd), data_of<float>(a.weight),
           data_of<float>(a.bias), data_of<float>(sums.weight_grad),
           data_of<float>(sums.bias_grad));
  const at::Tensor kept = a.keeps == NormKeeps::kMasked ? sums.masked : sums.output_again;
  return {result, sums.weight_grad, sums.bias_grad, kept};
}

BatchNormSums batch_norm_backward_sums(const BatchNormBackwardArguments& a,
                                       const at::Tensor& counters, const Launcher& launcher) {
  const BackwardSums sums(a);
  sums.launch(a, counters, launcher);
  return {sums.weight_grad, sums.bias_grad, sums.masked};
}

at::Tensor batch_norm_act_again(const BatchNormArguments& a, const BatchNormStatistics& statistics,
                                const Launcher& launcher) {
  const Apply apply(a);
  launcher.prepare(apply.kernel);
  apply.launch(a, statistics, launcher);
  return apply.y;
}

BatchNormStatistics batch_norm_statistics(const BatchNormArguments& a, const at::Tensor& counters,
                                          const Launcher& launcher) {
  return launch_statistics(a.input, plan_columns({a.input}), a, counters, launcher);
}

BatchNormResults batch_norm_act_unfused(const BatchNormArguments& a) {
  auto [y, mean, invstd] =
      at::native_batch_norm(a.input, a.weight, a.bias, a.running_mean, a.running_var,
                            /*training=*/true, a.momentum, a.epsilon);
  y = with_residual(y, a).to(a.input.scalar_type());
  if (a.relu) y = at::relu(y);
  return {y, mean, invstd, a.keep_bits ? relu_bits(y) : at::Tensor()};
}

at::Tensor batch_norm_act_again_unfused(const BatchNormArguments& a,
                                        const BatchNormStatistics& statistics) {
  const at::Tensor y = with_residual(normalized(a.input, statistics, a.weight, a.bias), a);
  return (a.relu ? at::relu(y) : y).to(a.input.scalar_type());
}

BatchNormStatistics batch_norm_statistics_unfused(const BatchNormArguments& a) {
  const auto [y, mean, invstd] =
      at::native_batch_norm(a.input, a.weight, a.bias, a.running_mean, a.running_var,
                            /*training=*/true, a.momentum, a.epsilon);
  return {mean, invstd};
}

BatchNormGradients batch_norm_act_backward_unfused(const BatchNormBackwardArguments& a) {
  at::Tensor grad = is_given(a.other) ? a.grad + *a.other : a.grad;
  if (a.mask == ReluMask::kOfOutput) grad = at::threshold_backward(grad, *a.output, 0);
  if (a.mask == ReluMask::kOfBits)
    grad = where_bits_are_set(*a.output, grad, a.input.scalar_type());
  if (a.mask == ReluMask::kOfInput)
    grad = at::where(normalized(a.input, {a.mean, a.invstd}, a.weight, a.bias) <= 0,
                     at::zeros_like(grad), grad);
  const bool has_weight = is_given(a.weight);
  const auto [result, weight_grad, bias_grad] =
      at::native_batch_norm_backward(grad, a.input, a.weight, {}, {}, a.mean, a.invstd,
                                     /*train=*/true, /*eps=*/0, {true, has_weight, has_weight});
  at::Tensor kept;
  if (a.keeps == NormKeeps::kMasked) kept = grad;
  if (a.keeps == NormKeeps::kOutput) {
    kept = batch_norm_act_again_unfused(
        {.input = a.input, .weight = a.weight, .bias = a.bias, .relu = true}, {a.mean, a.invstd});
  }
  return {result, weight_grad, bias_grad, kept};
}

}  // namespace tensorpack::cuda
