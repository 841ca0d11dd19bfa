// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/batch_norm.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kNormal = R"cuda(
// y = (x - mean) * factor + offset, of W columns.
struct Normal {
  float mean[W], factor[W], offset[W];
  __device__ Normal(int c, const float* mean_, const float* invstd, const float* weight,
                    const float* bias) {
#pragma unroll
    for (int i = 0; i < W; ++i) {
      mean[i] = mean_[c + i];
      factor[i] = weight ? weight[c + i] * invstd[c + i] : invstd[c + i];
      offset[i] = bias ? bias[c + i] : 0.f;
    }
  }
  __device__ float operator()(int i, float x) const { return fmaf(x - mean[i], factor[i], offset[i]); }
};
)cuda";

constexpr const char* kStatistics = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads, 2)
batch_norm_statistics(const T* __restrict__ x, long long R, int C, float* mean, float* invstd,
                      float* running_mean, float* running_var, float momentum, float epsilon,
                      float2* partial, unsigned* counter) {
  const int c = first_column();
  float s[W] = {}, q[W] = {}, about[W] = {};
  if (c < C) {
    unpack<W>(load<W>(x + c), about);
    for_rows(R, [&](long long r) { return load<W>(x + r * C + c); },
             [&](long long, const Vector<T, W>& row) {
      float f[W];
      unpack<W>(row, f);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        const float d = f[i] - about[i];
        s[i] += d;
        q[i] = fmaf(d, d, q[i]);
      }
    });
  }
  combine(s, q, C, partial, counter, [&](int column, float sum, float squares) {
    const float n = (float)R, m = sum / n, var = fmaxf(squares / n - m * m, 0.f);
    // fmaxf drops NaN.
    const float variance = squares != squares ? squares : var;
    const float average = to_float(x[column]) + m;
    mean[column] = average;
    invstd[column] = 1.f / sqrtf(variance + epsilon);
    if (running_mean) {
      running_mean[column] += momentum * (average - running_mean[column]);
      running_var[column] += momentum * (variance * (n / (n - 1.f)) - running_var[column]);
    }
  });
}
)cuda";

constexpr const char* kApply = R"cuda(
struct Row {
  Vector<T, W> x, residual;
};

extern "C" __global__ void __launch_bounds__(kThreads, 2)
batch_norm_apply(const T* __restrict__ x, const T* __restrict__ residual, T* __restrict__ y,
                 unsigned char* __restrict__ bits, long long R, int C, const float* mean,
                 const float* invstd, const float* weight, const float* bias,
                 const float* residual_mean, const float* residual_invstd,
                 const float* residual_weight, const float* residual_bias) {
  const int c = first_column();
  if (c >= C) return;
  Normal normal(c, mean, invstd, weight, bias);
  float slope[W];  // of the residual
  if constexpr (kNormalizesResidual) {
    const Normal other(c, residual_mean, residual_invstd, residual_weight, residual_bias);
    // All of both would not fit into the 64 registers of a thread, so what they add in every row
    // becomes one offset. The products in x * factor - mean * factor are rounded no more than x and
    // mean are.
#pragma unroll
    for (int i = 0; i < W; ++i) {
      normal.offset[i] = fmaf(-normal.mean[i], normal.factor[i], normal.offset[i]) +
                         fmaf(-other.mean[i], other.factor[i], other.offset[i]);
      normal.mean[i] = 0.f;
      slope[i] = other.factor[i];
    }
  }
  for_rows<kFromTheEnd>(R, [&](long long r) {
    Row row;
    row.x = load<W>(x + r * C + c);
    if constexpr (kResidual) row.residual = load<W>(residual + r * C + c);
    return row;
  }, [&](long long r, const Row& row) {
    float f[W], add[W];
    unpack<W>(row.x, f);
    if constexpr (kResidual) unpack<W>(row.residual, add);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      f[i] = normal(i, f[i]);
      if constexpr (kNormalizesResidual) f[i] = fmaf(add[i], slope[i], f[i]);
      else if constexpr (kResidual) f[i] += add[i];
      if constexpr (kRelu) f[i] = relu(f[i]);
    }
    store<W>(y + r * C + c, f);
    if constexpr (kBits) {
      unsigned passed = 0;
#pragma unroll
      for (int i = 0; i < W; ++i) {
        T rounded;  // as the next layer sees it
        from_float(f[i], rounded);
        passed |= (to_float(rounded) <= 0.f ? 0u : 1u) << i;
      }
      bits[(r * C + c) / W] = (unsigned char)passed;
    }
  });
}
)cuda";

constexpr const char* kBackwardSums = R"cuda(
struct Row {
  Vector<T, W> x, grad, other, output;
  unsigned char bits;
};

extern "C" __global__ void __launch_bounds__(kThreads, 2)
batch_norm_backward_sums(const T* __restrict__ x, const T* __restrict__ grad,
                         const T* __restrict__ other, const T* __restrict__ output,
                         const unsigned char* __restrict__ bits, T* __restrict__ masked,
                         T* __restrict__ again, long long R, int C, const float* mean, const float* invstd,
                         const float* weight, const float* bias, float* weight_grad,
                         float* bias_grad, float2* partial, unsigned* counter) {
  const int c = first_column();
  float s[W] = {}, q[W] = {};
  if (c < C) {
    const Normal normal(c, mean, invstd, weight, bias);
    for_rows(R, [&](long long r) {
      const long long at = r * C + c;
      Row row;
      row.x = load<W>(x + at);
      row.grad = load<W>(grad + at);
      if constexpr (kOther) row.other = load<W>(other + at);
      if constexpr (kMask == kOfOutput) row.output = load<W>(output + at);
      if constexpr (kMask == kOfBits) row.bits = bits[at / W];
      return row;
    }, [&](long long r, const Row& row) {
      float f[W], g[W], add[W], out[W];
      unpack<W>(row.x, f);
      unpack<W>(row.grad, g);
      if constexpr (kOther) unpack<W>(row.other, add);
      if constexpr (kMask == kOfOutput) unpack<W>(row.output, out);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        if constexpr (kOther) g[i] += add[i];
        if constexpr (kMask == kOfOutput) g[i] = out[i] <= 0.f ? 0.f : g[i];
        if constexpr (kMask == kOfBits) g[i] = row.bits >> i & 1 ? g[i] : 0.f;
        if constexpr (kMask == kOfInput) g[i] = normal(i, f[i]) <= 0.f ? 0.f : g[i];
        if constexpr (kAgain) out[i] = relu(normal(i, f[i]));
        s[i] += g[i];
        q[i] = fmaf(g[i], f[i] - normal.mean[i], q[i]);
      }
      if constexpr (kStore) store<W>(masked + r * C + c, g);
      if constexpr (kAgain) store<W>(again + r * C + c, out);
    });
  }
  combine(s, q, C, partial, counter, [&](int column, float sum, float product) {
    bias_grad[column] = sum;
    weight_grad[column] = product * invstd[column];
  });
}
)cuda";

constexpr const char* kBackwardResult = R"cuda(
struct Row {
  Vector<T, W> x, grad;
};

extern "C" __global__ void __launch_bounds__(kThreads, 2)
batch_norm_backward_result(const T* __restrict__ x, const T* __restrict__ grad,
                           T* __restrict__ result, long long R, int C, const float* mean,
                           const float* invstd, const float* weight, const float* bias,
                           const float* weight_grad, const float* bias_grad) {
  const int c = first_column();
  if (c >= C) return;
  const Normal normal(c, mean, invstd, weight, bias);
  float slope[W], level[W];
#pragma unroll
  for (int i = 0; i < W; ++i) {
    slope[i] = weight_grad[c + i] * invstd[c + i] / (float)R;
    level[i] = bias_grad[c + i] / (float)R;
  }
  for_rows<kFromTheEnd>(R, [&](long long r) {
    Row row;
    row.x = load<W>(x + r * C + c);
    row.grad = load<W>(grad + r * C + c);
    return row;
  }, [&](long long r, const Row& row) {
    float f[W], g[W];
    unpack<W>(row.x, f);
    unpack<W>(row.grad, g);
#pragma unroll
    for (int i = 0; i < W; ++i) {
      if constexpr (kMask == kOfInput) g[i] = normal(i, f[i]) <= 0.f ? 0.f : g[i];
      g[i] = normal.factor[i] * (g[i] - level[i] - (f[i] - normal.mean[i]) * slope[i]);
    }
    store<W>(result + r * C + c, g);
  });
}
)cuda";

// Rows that a thread has in flight, as measured on an H200 over the shapes of ResNet-50; more take
// registers, and with them the second block of a multiprocessor.
constexpr int kUnrollOfStatistics = 4;
constexpr int kUnroll = 2;

// In float32 a thread has half as many columns, and registers for another row.
int unroll_of_sums(const ColumnPlan& plan) { return plan.type == c10::kFloat ? 2 : 1; }

std::string mask_constants(ReluMask mask) {
  return fmt::format("constexpr int kOfInput = {}, kOfOutput = {}, kOfBits = {}, kMask = {};\n",
                     static_cast<int>(ReluMask::kOfInput), static_cast<int>(ReluMask::kOfOutput),
                     static_cast<int>(ReluMask::kOfBits), static_cast<int>(mask));
}

}  // namespace

std::string normal_columns() { return kNormal; }

KernelSource batch_norm_statistics(const ColumnPlan& plan) {
  return {"batch_norm_statistics",
          column_head(plan, kUnrollOfStatistics) + column_sums() + column_rows() + kStatistics};
}

KernelSource batch_norm_apply(const ColumnPlan& plan, const BatchNormApply& what) {
  return {"batch_norm_apply",
          column_head(plan, kUnroll) +
              fmt::format("constexpr bool kResidual = {}, kNormalizesResidual = {}, kRelu = {}, "
                          "kBits = {};\n",
                          what.residual, what.normalizes_residual, what.relu, what.bits) +
              column_rows() + kNormal + kApply};
}

KernelSource batch_norm_backward_sums(const ColumnPlan& plan, ReluMask mask, bool other,
                                      const BatchNormBackwardWrites& writes) {
  return {"batch_norm_backward_sums",
          column_head(plan, unroll_of_sums(plan)) + mask_constants(mask) +
              fmt::format("constexpr bool kOther = {}, kStore = {}, kAgain = {};\n", other,
                          writes.masked, writes.output) +
              column_sums() + column_rows() + kNormal + kBackwardSums};
}

KernelSource batch_norm_backward_result(const ColumnPlan& plan, ReluMask mask) {
  return {"batch_norm_backward_result", column_head(plan, kUnroll) + mask_constants(mask) +
                                            column_rows() + kNormal + kBackwardResult};
}

}  // namespace tensorpack::cuda
