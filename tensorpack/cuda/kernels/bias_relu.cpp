// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/bias_relu.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/column_sum.h"
#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

constexpr int kUnroll = 2;
constexpr int kBlocks = 2;  // per multiprocessor

constexpr const char* kForward = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads, 2)
bias_relu(const T* __restrict__ x, const B* __restrict__ bias, T* __restrict__ y, long long R,
          int C) {
  const int c = first_column();
  if (c >= C) return;
  float b[W];
#pragma unroll
  for (int i = 0; i < W; ++i) b[i] = to_float(bias[c + i]);
  for_rows(R, [&](long long r) { return load<W>(x + r * C + c); },
           [&](long long r, const Vector<T, W>& row) {
    float f[W];
    unpack<W>(row, f);
#pragma unroll
    for (int i = 0; i < W; ++i) f[i] = relu(f[i] + b[i]);
    store<W>(y + r * C + c, f);
  });
}
)cuda";

constexpr const char* kBackward = R"cuda(
struct Row {
  Vector<T, W> grad, output;
};

extern "C" __global__ void __launch_bounds__(kThreads, 2)
bias_relu_backward(const T* __restrict__ grad, const T* __restrict__ output,
                   T* __restrict__ result, long long R, int C, B* bias_grad, float2* partial,
                   unsigned* counter) {
  const int c = first_column();
  float s[W] = {}, unused[W] = {};
  if (c < C) {
    for_rows(R, [&](long long r) {
      return Row{load<W>(grad + r * C + c), load<W>(output + r * C + c)};
    }, [&](long long r, const Row& row) {
      float g[W], y[W];
      unpack<W>(row.grad, g);
      unpack<W>(row.output, y);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        g[i] = y[i] <= 0.f ? 0.f : g[i];
        s[i] += g[i];
      }
      store<W>(result + r * C + c, g);
    });
  }
  combine(s, unused, C, partial, counter,
          [&](int column, float sum, float) { from_float(sum, bias_grad[column]); });
}
)cuda";

std::string head(const ColumnPlan& plan, c10::ScalarType bias) {
  return prelude() +
         fmt::format("using T = {};\nusing B = {};\nconstexpr int W = {}, U = {}, kThreads = {};\n",
                     kernel_type(plan.type), kernel_type(bias), plan.width, kUnroll,
                     ColumnPlan::kThreads);
}

at::Tensor laid_out_as(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
}

}  // namespace

at::Tensor bias_relu(const at::Tensor& input, const at::Tensor& bias, const Launcher& launcher) {
  const at::Tensor y = laid_out_as(input);
  const ColumnPlan plan = plan_columns({input, y});
  const KernelSource kernel{"bias_relu", head(plan, bias.scalar_type()) + column_rows() + kForward};
  launcher(kernel, plan.shape(launcher.multiprocessors(), kBlocks), input.data_ptr(),
           bias.data_ptr(), y.data_ptr(), static_cast<long long>(plan.rows),
           static_cast<int>(plan.columns));
  return y;
}

std::tuple<at::Tensor, at::Tensor> bias_relu_backward(const at::Tensor& grad_,
                                                      const at::Tensor& output,
                                                      const at::Tensor& counters,
                                                      c10::ScalarType type,
                                                      const Launcher& launcher) {
  const at::Tensor grad = laid_out_like(output, grad_);
  const at::Tensor result = laid_out_as(output);
  const ColumnPlan plan = plan_columns({output, grad, result});
  // Wide blocks: with those of other sums, a large image takes 2 % longer.
  const LaunchShape shape = plan.shape(launcher.multiprocessors(), kBlocks);
  const at::Tensor bias_grad = at::empty({plan.columns}, output.options().dtype(type));
  const at::Tensor partial =
      at::empty({shape.grid[1], plan.columns, 2}, output.options().dtype(at::kFloat));
  const KernelSource kernel{"bias_relu_backward",
                            head(plan, type) + column_sums() + column_rows() + kBackward};
  launcher(kernel, shape, grad.data_ptr(), output.data_ptr(), result.data_ptr(),
           static_cast<long long>(plan.rows), static_cast<int>(plan.columns), bias_grad.data_ptr(),
           partial.data_ptr(), counters.data_ptr());
  return {result, bias_grad};
}

at::Tensor bias_relu_unfused(const at::Tensor& input, const at::Tensor& bias) {
  const at::Tensor b = bias.to(input.scalar_type());
  return at::relu(input + (input.dim() == 4 ? b.view({1, -1, 1, 1}) : b));
}

std::tuple<at::Tensor, at::Tensor> bias_relu_backward_unfused(const at::Tensor& grad,
                                                              const at::Tensor& output,
                                                              c10::ScalarType type) {
  const at::Tensor result = at::threshold_backward(grad, output, 0);
  return {result, column_sum_unfused(result, /*keep_rows=*/false, type)};
}

}  // namespace tensorpack::cuda
