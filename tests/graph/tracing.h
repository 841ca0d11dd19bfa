// SPDX-License-Identifier: Apache-2.0
// Short ways to a trace and back to numbers.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "tensorpack/graph/program.h"
#include "tensorpack/graph/recorder.h"

namespace tensorpack {

using Tensors = std::vector<at::Tensor>;

inline const Tensors kInput{at::arange(6).reshape({2, 3}).to(at::kFloat)};
inline const Tensors kOnes{at::ones({2, 3})};

/// Records `function` on copies of the inputs.
inline Trace trace_of(const Tensors& inputs, const Tensors& variables,
                      const std::function<NamedTensors(const Tensors&)>& function) {
  RecordOptions options;
  for (const at::Tensor& input : inputs) {
    options.input_names.push_back("in" + std::to_string(options.inputs.size()));
    options.inputs.push_back(input.clone());
  }
  for (const at::Tensor& variable : variables) {
    options.variables.emplace_back("var" + std::to_string(options.variables.size()), variable);
  }
  options.function = [&] { return function(options.inputs); };
  return record(options).trace;
}

/// The operators of a trace, in order.
inline std::vector<std::string> operators(const Trace& trace) {
  std::vector<std::string> names;
  for (const Node& node : trace.nodes) names.push_back(node.op_name());
  return names;
}

/// One run of a program made of the trace as it is.
inline at::Tensor run(const Trace& trace, const Tensors& inputs, const std::string& fetch = "") {
  const std::vector<std::string> fetches =
      fetch.empty() ? std::vector<std::string>{} : std::vector<std::string>{fetch};
  Tensors copies;
  for (const at::Tensor& input : inputs) copies.push_back(input.clone());
  const Tensors values = Program(trace, fetches).run(copies);
  return values.empty() ? at::Tensor() : values[0].clone();
}

}  // namespace tensorpack
