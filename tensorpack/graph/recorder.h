// SPDX-License-Identifier: Apache-2.0
// Runs a function once and writes down every operator it, and autograd on its behalf, executed.
//
// Note [Recording]
// The recorder is a watch of operators (see Note [Watching below autograd]): what it writes down is
// what the backends run. Tensors are told apart by storage and geometry, because autograd hands
// saved tensors back in new wrappers.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/graph/captured_tensor.h"
#include "tensorpack/graph/detail/saved_state.h"
#include "tensorpack/graph/op.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct RecordOptions {
  /// Bound anew at every run. Must not share memory with each other.
  std::vector<at::Tensor> inputs = {};
  std::vector<std::string> input_names = {};
  /// Held by reference, and may be written: (name, tensor).
  std::vector<std::pair<std::string, at::Tensor>> variables = {};
  std::function<NamedTensors()> function = {};
  /// Outputs of layers that the function needs itself; others are recorded but not kept.
  std::set<std::string> kept_layer_outputs = {};
  /// What may be fetched of the outputs of layers; what the function returns may be in any case.
  std::function<bool(const std::string& name)> is_output = {};
  /// Slow, for tests: finds operators that write to memory their schema calls read-only.
  bool check_undeclared_writes = false;
  /// Keeps a copy of what every node returned, to find where two runs part.
  bool keep_results = false;
};

struct Recording {
  Trace trace = {};
  NamedTensors outputs = {};
  /// With keep_results: for every node, copies of its tensor results, in order.
  std::vector<std::vector<at::Tensor>> results = {};
  /// What the function changed though the graph does not own it (a tensor it captured, a generator
  /// of its own), as it was before.
  SavedState foreign = {};
  /// What the function holds, of the constants that vary.
  std::vector<CapturedTensor> captured = {};
  /// What was unusual, for the debug log: views made behind the dispatcher, frozen host data ...
  std::vector<std::string> remarks = {};
};

/// Executes the function on this thread, once. Throws an Error naming operator and scope when it
/// does something a program cannot repeat. Memory that belongs to no input, variable or operator
/// but is written by the function is put back as it was, and generators passed to operators too.
/// Several threads may record at a time.
Recording record(const RecordOptions& options);

/// Whether this thread records a function.
bool is_recording();

/// Whether the function that this thread records computed `tensor` from its inputs, detached or
/// not. Nothing while nothing is recorded.
std::optional<bool> is_computed_from_inputs(const at::Tensor& tensor);

}  // namespace tensorpack
