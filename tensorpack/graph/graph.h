// SPDX-License-Identifier: Apache-2.0
// The definition of a training: its variables and its ops.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/op.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/graph/variable_store.h"

namespace tensorpack {

struct GraphOptions {
  c10::Device device = c10::kCPU;
  /// Seeds every variable's first value, together with its name.
  uint64_t seed = 0;
  /// Lets layers keep the weights of convolutions in channels_last memory format, which
  /// convolutions and what follows them take over: faster, with the same shapes. Given up for the
  /// whole graph when a model cannot be called that way, as when it uses view() where it would need
  /// reshape().
  bool channels_last = true;
};

struct OpOptions {
  std::string name = {};
  std::vector<TensorSpec> inputs = {};
  OpBody body = {};
  /// Empty when inputs are fed to every run.
  InputFeeder feeder = {};
  std::optional<c10::Device> device = {};  ///< the graph's when empty
};

/// Variables and ops that belong together. First they are defined, then the graph is made final,
/// then a session runs it.
class Graph {
 public:
  explicit Graph(GraphOptions options = {});
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  const GraphOptions& options() const { return options_; }
  /// That of the graph and those of its ops, each once.
  const std::vector<c10::Device>& devices() const { return devices_; }
  VariableStore& variables() { return variables_; }
  const VariableStore& variables() const { return variables_; }

  /// Counts hooked runs; an int64 on the CPU, saved with the model.
  Variable& global_step() { return *global_step_; }

  /// Calls the body once on trial inputs, which creates its variables and shows the tensors it
  /// names, and leaves variables and generators as if it had not run. Errors name the op.
  Op define(OpOptions options);

  /// Every op defined so far, in order.
  const std::vector<Op>& ops() const { return ops_; }

  /// From now on no variable and no op can be added.
  void finalize() { final_ = true; }
  bool is_final() const { return final_; }

  /// Called by sessions: recorded programs refer to variables by their memory, so from now on it
  /// stays as it is.
  void lock_layout() { layout_locked_ = true; }

  /// Asked by layers: whether to use channels_last memory format. An op that cannot be built that
  /// way is built again without.
  bool wants_channels_last();

  /// Used by get_variable(): makes a variable and gives it its first value.
  Variable& create_variable(const std::string& name, at::IntArrayRef shape,
                            const VariableOptions& options, c10::Device device);

 private:
  friend class StateGuard;
  void use_device(c10::Device device);
  void build(Op::State& state);
  bool give_up_channels_last();

  GraphOptions options_;
  std::vector<c10::Device> devices_;
  VariableStore variables_;
  Variable* global_step_ = nullptr;
  std::vector<Op> ops_;
  bool final_ = false;
  bool layout_locked_ = false;
  bool channels_last_used_ = false;
  class StateGuard* guard_ = nullptr;  // the innermost guard, told of new variables
};

/// The same device with its index filled in: "cuda" is the current GPU. Throws an Error when this
/// machine, or this libtorch, does not have it.
c10::Device check_device(c10::Device device);

/// The text of an exception without libtorch's stack trace.
std::string describe(const std::exception& error);

}  // namespace tensorpack
