// SPDX-License-Identifier: Apache-2.0
// What the outputs of a model are computed from.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack::detail {

/// The op's function, recorded on trial inputs: what is left of it when it is cut down to an output
/// is what that output needs.
class Needs {
 public:
  Needs(Graph& graph, const Op& op);

  /// False for a model that cannot be recorded, of which nothing is known.
  bool are_known() const { return trace_.has_value(); }
  /// Whether a tensor that the function names is computed from an input of this name. An input
  /// needs itself.
  bool needs_input(const std::string& output, const std::string& input) const;
  /// The names of the variables that a tensor is computed from. A variable needs itself.
  std::set<std::string> variables_of(const std::string& output) const;

 private:
  // What is left for one output; nothing for an input or a variable.
  Trace cut_to(const std::string& output) const;

  Op op_;
  std::optional<Trace> trace_;
};

}  // namespace tensorpack::detail
