// SPDX-License-Identifier: Apache-2.0
// Whether a rewritten program does, operator by operator, what it was made from.
//
// Note [Side by side]
// Rounding can decide what happens next: which of equal values a max pooling takes, or the sign of
// a gradient that is zero but for rounding, which is what the first step of Adam goes by. Programs
// that round differently then part, though both are right. So an operator that was put in the place
// of others is judged where it stands: on the values of the plain program, by what that makes of
// them. One that is wrong is found, and nothing magnifies what is rounding.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

struct SideBySide {
  std::vector<at::Tensor> outputs = {};  // what was fetched of the plain program
  /// The first operator that makes something else of the same values: "node 3, aten::add.Tensor in
  /// scope 'fc'"; empty if all agree.
  std::string difference = {};
};

/// Runs the nodes of `plain` in order and, on the same values, those of `rewritten` that it does
/// not have. The inputs may be written to. Nothing if the two cannot be compared: what one alone
/// has writes to memory, draws random numbers or talks to other towers, or the order is another.
std::optional<SideBySide> run_side_by_side(const Trace& plain, const Trace& rewritten,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<std::string>& fetches);

}  // namespace tensorpack
