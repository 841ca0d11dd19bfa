// SPDX-License-Identifier: Apache-2.0
// Which of libtorch's operators are steps of formulas.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {

struct PointwiseOperand {
  ValueId id = kNoValue;  ///< kNoValue: it is `number`
  double number = 0;
};

/// A node as a step of a formula.
struct PointwiseNode {
  std::string op = {};  ///< see formula.h
  std::vector<PointwiseOperand> operands = {};
};

/// The node as a step; nothing if it is none, or is on another type of device.
std::optional<PointwiseNode> as_pointwise(const TraceEditor& editor, const Node& node,
                                          c10::DeviceType device);

}  // namespace tensorpack::cuda
