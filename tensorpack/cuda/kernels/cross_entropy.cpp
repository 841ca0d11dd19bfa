// SPDX-License-Identifier: Apache-2.0
// Note [Rows on chip]
// A block loads a row into shared memory once, finds its largest element, the sum of exponentials
// about it, and writes the gradient: one read and one write of the logits in all. The mean needs to
// know how many rows count, which a small kernel finds first; another one adds up the rows' losses.
// (Doing that in the last block made every block wait for its writes, and took 1.4 times as long.)
#include "tensorpack/cuda/kernels/cross_entropy.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/rows.h"

namespace tensorpack::cuda {
namespace {

constexpr int kCountThreads = 1024;

constexpr const char* kCount = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
cross_entropy_count(const long long* target, long long rows, long long ignored, float* count) {
  float n = 0.f;
  for (long long r = threadIdx.x; r < rows; r += kThreads) n += target[r] != ignored ? 1.f : 0.f;
  n = sum_of_block(n);
  if (threadIdx.x == 0) *count = n;
}
)cuda";

constexpr const char* kSum = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
cross_entropy_sum(const float* row_losses, long long rows, const float* count, int mean,
                  float* loss) {
  float total = 0.f;
  for (long long r = threadIdx.x; r < rows; r += kThreads) total += row_losses[r];
  total = sum_of_block(total);
  if (threadIdx.x == 0) *loss = mean ? total / *count : total;
}
)cuda";

constexpr const char* kLoss = R"cuda(
// About as fast as the memory; float deserves the last bits.
__device__ __forceinline__ float exponential(float v) {
  return kIsFloat ? expf(v) : exp2f(v * 1.44269504f);
}

extern "C" __global__ void __launch_bounds__(kThreads)
cross_entropy(const T* __restrict__ logits, const long long* __restrict__ target,
              const float* __restrict__ loss_grad, const float* __restrict__ count,
              G* __restrict__ grad, float* row_losses, int classes, long long ignored) {
  T* row = reinterpret_cast<T*>(dynamic_shared);
  const long long r = blockIdx.x, at = r * classes;
  const int tid = threadIdx.x;
  float largest = -infinity();
  for (int i = tid * W; i < classes; i += kThreads * W) {
    const Vector<T, W> v = load<W>(logits + at + i);
    *reinterpret_cast<Vector<T, W>*>(row + i) = v;
    float f[W];
    unpack<W>(v, f);
#pragma unroll
    for (int k = 0; k < W; ++k) largest = fmaxf(largest, f[k]);
  }
  largest = max_of_block(largest);
  float sum = 0.f;
  for (int i = tid * W; i < classes; i += kThreads * W) {
    float f[W];
    unpack<W>(load<W>(row + i), f);
#pragma unroll
    for (int k = 0; k < W; ++k) sum += exponential(f[k] - largest);
  }
  sum = sum_of_block(sum);
  const long long y = target[r];
  const bool counts = y != ignored, is_class = y >= 0 && y < classes;
  if (tid == 0) {
    const float value = is_class ? logf(sum) + largest - to_float(row[y]) : not_a_number();
    row_losses[r] = counts ? value : 0.f;
  }
  const float scale = !counts ? 0.f : kMean ? *loss_grad / *count : *loss_grad;
  const float factor = scale / sum;
  const int label = is_class ? (int)y : -1;
  for (int i = tid * W; i < classes; i += kThreads * W) {
    float f[W];
    unpack<W>(load<W>(row + i), f);
#pragma unroll
    for (int k = 0; k < W; ++k) {
      f[k] = exponential(f[k] - largest) * factor;
      if (i + k == label) f[k] -= scale;
    }
    store<W>(grad + at + i, f);
  }
}
)cuda";

// Of one block, over all rows.
KernelSource small_kernel(const std::string& name, const char* text) {
  return {name, prelude() + fmt::format("constexpr int kThreads = {};\n", kCountThreads) +
                    row_sums() + text};
}

KernelSource loss_kernel(const RowPlan& plan, c10::ScalarType grad_type, bool mean) {
  const std::string constants = fmt::format(
      "using T = {};\nusing G = {};\nconstexpr int W = {}, kThreads = {};\n"
      "constexpr bool kMean = {}, kIsFloat = {};\n",
      kernel_type(plan.type), kernel_type(grad_type), plan.width, plan.threads, mean,
      plan.type == c10::kFloat);
  return {"cross_entropy", prelude() + constants + row_sums() + dynamic_shared() + kLoss};
}

}  // namespace

bool fits_cross_entropy(c10::ScalarType type, int64_t classes) {
  return has_kernel_type(type) && classes > 0 &&
         classes * static_cast<int64_t>(c10::elementSize(type)) <= kLargestRowBytes;
}

CrossEntropyResults cross_entropy(const CrossEntropyArguments& a, const Launcher& launcher) {
  const int64_t rows = a.logits.size(0), classes = a.logits.size(1);
  const auto floats = a.logits.options().dtype(at::kFloat);
  const at::Tensor loss = at::empty({}, floats);
  const at::Tensor count = at::empty({}, floats);
  const at::Tensor row_losses = at::empty({rows}, floats);
  const at::Tensor grad = at::empty({rows, classes}, a.logits.options().dtype(a.grad_type));
  const RowPlan plan = plan_rows({a.logits, grad});
  const KernelSource counting = small_kernel("cross_entropy_count", kCount);
  const KernelSource main = loss_kernel(plan, a.grad_type, a.mean);
  const KernelSource summing = small_kernel("cross_entropy_sum", kSum);
  for (const KernelSource* kernel : {&counting, &main, &summing}) launcher.prepare(*kernel);
  const LaunchShape one_block{.block = {kCountThreads, 1}};
  launcher(counting, one_block, a.target.data_ptr(), static_cast<long long>(rows),
           static_cast<long long>(a.ignore_index), count.data_ptr());
  launcher(main,
           {.grid = {static_cast<unsigned>(rows), 1},
            .block = {static_cast<unsigned>(plan.threads), 1},
            .shared_bytes = static_cast<unsigned>(plan.row_bytes())},
           a.logits.data_ptr(), a.target.data_ptr(), a.loss_grad.data_ptr(), count.data_ptr(),
           grad.data_ptr(), row_losses.data_ptr(), static_cast<int>(classes),
           static_cast<long long>(a.ignore_index));
  launcher(summing, one_block, row_losses.data_ptr(), static_cast<long long>(rows),
           count.data_ptr(), static_cast<int>(a.mean), loss.data_ptr());
  return {loss, count, grad};
}

CrossEntropyResults cross_entropy_unfused(const CrossEntropyArguments& a) {
  const int64_t reduction = a.mean ? at::Reduction::Mean : at::Reduction::Sum;
  const at::Tensor log_probabilities = at::_log_softmax(a.logits.to(at::kFloat), 1, false);
  const auto [loss, count] =
      at::nll_loss_forward(log_probabilities, a.target, {}, reduction, a.ignore_index);
  const at::Tensor grad = at::nll_loss_backward(a.loss_grad, log_probabilities, a.target, {},
                                                reduction, a.ignore_index, count);
  return {loss, count,
          at::_log_softmax_backward_data(grad, log_probabilities, 1, at::kFloat).to(a.grad_type)};
}

}  // namespace tensorpack::cuda
