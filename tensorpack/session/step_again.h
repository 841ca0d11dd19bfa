// SPDX-License-Identifier: Apache-2.0
// A step of a training, run once more operator by operator, to look inside. The training is left as
// it is: variables and random numbers are put back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/session/session.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Where an operator of a recorded step comes from.
struct OperatorOrigin {
  std::string op = {};  ///< "aten::convolution"
  /// "conv0"; empty outside all scopes.
  std::string layer = {};
  bool is_backward = false;

  /// "aten::log in the backward pass of layer 'conv0'".
  std::string describe() const;
};

/// Where the first number that is not finite came from.
struct NotFinite {
  /// "NaN" or "infinity".
  std::string what = {};
  /// The operator that made it of finite numbers (NaN: of numbers); nothing when the step started
  /// with it, in the input or variable `name`.
  std::optional<OperatorOrigin> origin = {};
  std::string name = {};
  /// For a NaN: the operator that gave infinities before, which are the usual reason.
  std::optional<OperatorOrigin> infinity = {};
};

/// Runs the program op on `inputs` and looks at all that its operators give. Nothing when all of it
/// is finite. Infinities that do no harm, such as those of a mask, are told only if there is no
/// NaN.
std::optional<NotFinite> find_not_finite(Session& session, const Op& op,
                                         const std::vector<at::Tensor>& inputs);

/// What one operator of a step took.
struct OperatorTime {
  OperatorOrigin origin = {};
  double start = 0;    ///< seconds since the step began
  double seconds = 0;  ///< the median over the repetitions
  int64_t bytes = 0;   ///< of its results, if they are not views
};

/// Runs the program that `op` is lowered to on `inputs`, operator by operator, and takes the times.
/// On CUDA the device is waited for after each: fused kernels are timed, but not their overlap.
std::vector<OperatorTime> time_operators(Session& session, const Op& op,
                                         const std::vector<at::Tensor>& inputs,
                                         int repetitions = 5);

}  // namespace tensorpack
