// SPDX-License-Identifier: Apache-2.0
// Batch norm in training, with what is around it: relu, a residual, and both their gradients.
//
//   tensorpack::batch_norm_act           y = relu(batch_norm(x) + residual), statistics of x
//   tensorpack::batch_norm_act_backward  from the gradient of y to those of x, weight and bias
//   tensorpack::batch_norm_act_again     y once more, bit by bit, from x and the statistics; the
//                                        backward pass can give it, too, as it reads x anyway
//   tensorpack::batch_norm_statistics    statistics of x alone
//
// The first two are two passes over the data: sums, then the result. A residual can be one that is
// yet to be normalised, with statistics known before. Where kernels cannot be compiled, they are
// computed with libtorch's operators.
#pragma once

#include <c10/util/Optional.h>

#include <tuple>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// How the backward pass finds what relu let pass.
enum class ReluMask : int {
  kNone = 0,      ///< there was no relu
  kOfInput = 1,   ///< where the normalised input is positive, computed again
  kOfOutput = 2,  ///< where the output is positive
  kOfBits = 3     ///< where a bit says that the output is positive, see has_relu_bits()
};

/// What the backward pass gives besides gradients.
enum class NormKeeps : int {
  kNothing = 0,
  kMasked = 1,  ///< the sum of the gradients where relu let them pass
  kOutput = 2   ///< what the forward pass gave, once more; for ReluMask::kOfInput
};

/// True if there are bits for a tensor of this type and number of channels: those of as many
/// neighbouring channels as a thread loads at a time make a byte.
bool has_relu_bits(c10::ScalarType type, int64_t channels);
/// The bytes that they take.
int64_t relu_bits_size(c10::ScalarType type, int64_t elements);

/// What the pass that makes y does besides normalising.
struct BatchNormApply {
  bool residual = false;
  bool normalizes_residual = false;
  bool relu = false;
  bool bits = false;
};

/// Device code, after column_head(): Normal, which normalises the columns of a thread.
std::string normal_columns();

KernelSource batch_norm_statistics(const ColumnPlan& plan);
KernelSource batch_norm_apply(const ColumnPlan& plan, const BatchNormApply& what);
/// What the first pass of the backward pass writes besides sums.
struct BatchNormBackwardWrites {
  bool masked = false;
  bool output = false;
};
KernelSource batch_norm_backward_sums(const ColumnPlan& plan, ReluMask mask, bool other,
                                      const BatchNormBackwardWrites& writes);
KernelSource batch_norm_backward_result(const ColumnPlan& plan, ReluMask mask);

using MaybeTensor = c10::optional<at::Tensor>;

/// What is known once the first pass is done.
struct BatchNormStatistics {
  at::Tensor mean, invstd;
};

struct BatchNormArguments {
  at::Tensor input;
  MaybeTensor weight = {}, bias = {};                           // float
  MaybeTensor running_mean = {}, running_var = {};              // float, both or none; updated
  MaybeTensor residual = {};                                    // added before relu
  c10::optional<BatchNormStatistics> residual_statistics = {};  // if it is to be normalised, too
  MaybeTensor residual_weight = {}, residual_bias = {};
  double momentum = 0.1;
  double epsilon = 1e-5;
  bool relu = false;
  bool keep_bits = false;  // what relu let pass is a result, see ReluMask::kOfBits
};

struct BatchNormBackwardArguments {
  at::Tensor grad;
  MaybeTensor other = {};  // a second gradient, to be added
  at::Tensor input;
  MaybeTensor output = {};  // for kOfOutput; for kOfBits its bits
  MaybeTensor weight = {}, bias = {};
  at::Tensor mean, invstd;
  ReluMask mask = ReluMask::kNone;
  NormKeeps keeps = NormKeeps::kNothing;
};

/// y, mean, 1 / standard deviation, and what keep_bits asks for.
using BatchNormResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
/// The gradients of input, weight and bias, and what `keeps` asks for.
using BatchNormGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// What the first pass of the backward pass finds.
struct BatchNormSums {
  at::Tensor weight_grad, bias_grad;
  at::Tensor masked;  // the gradient where relu let it pass, if the first pass wrote it
};

/// By kernels of ours. `counters` are those of make_counters().
BatchNormResults batch_norm_act(const BatchNormArguments& arguments, const at::Tensor& counters,
                                const Launcher& launcher);
BatchNormGradients batch_norm_act_backward(const BatchNormBackwardArguments& arguments,
                                           const at::Tensor& counters, const Launcher& launcher);
/// The first pass of it.
BatchNormSums batch_norm_backward_sums(const BatchNormBackwardArguments& arguments,
                                       const at::Tensor& counters, const Launcher& launcher);
at::Tensor batch_norm_act_again(const BatchNormArguments& arguments,
                                const BatchNormStatistics& statistics, const Launcher& launcher);
BatchNormStatistics batch_norm_statistics(const BatchNormArguments& arguments,
                                          const at::Tensor& counters, const Launcher& launcher);

/// By libtorch's operators, on any device.
BatchNormResults batch_norm_act_unfused(const BatchNormArguments& arguments);
BatchNormGradients batch_norm_act_backward_unfused(const BatchNormBackwardArguments& arguments);
at::Tensor batch_norm_act_again_unfused(const BatchNormArguments& arguments,
                                        const BatchNormStatistics& statistics);
BatchNormStatistics batch_norm_statistics_unfused(const BatchNormArguments& arguments);

}  // namespace tensorpack::cuda
