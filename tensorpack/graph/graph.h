// SPDX-License-Identifier: Apache-2.0
// The definition of a training: its variables and its ops.
#pragma once

#include <c10/core/Device.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

#include "tensorpack/graph/op.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/graph/variable_store.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

struct GraphOptions {
  c10::Device device = c10::kCPU;
  /// Seeds every variable's first value, together with its name, and what ops draw; derived from
  /// global_seed() when empty.
  std::optional<uint64_t> seed = {};
  /// Of this process: every rank draws random numbers of its own, from the same first values.
  int rank = 0;
  /// Where variables are kept: each on the one of these that has the fewest elements yet; on the
  /// device of the tower that makes them if empty. Towers elsewhere copy them in every run.
  std::vector<c10::Device> variable_devices = {};
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
  /// The stream of random numbers the op draws from: ops with the same one continue each other.
  std::string random_stream = "main";
  /// Ops of different towers may run at once.
  int tower = 0;
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
  /// What first values and streams of random numbers follow from.
  uint64_t seed() const { return seed_; }
  /// The streams that ops draw from, by name and device: "main/cpu".
  const std::map<std::string, at::Generator>& generators() const;
  VariableStore& variables() { return variables_; }
  const VariableStore& variables() const { return variables_; }

  /// Keeps sessions from running ops while the returned lock lives: hold it to read or write
  /// variables on the host while other threads may run ops, as predictors of a training do. A
  /// thread may lock twice. Do not run ops meanwhile, and do not wait for a thread that does.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> lock_variables() const;

  /// Tells that something on the host was changed on purpose that functions of ops read: a number
  /// they captured, a member, a captured tensor that was replaced. Before its next run every op is
  /// recorded again, and what differs takes effect. Setters of hyper-parameters do so. Any thread
  /// may call it; a callback that runs in the chief process alone while others train gets an Error.
  void announce_change();
  int64_t announced_changes() const { return announced_changes_; }

  /// Callbacks that save the graph call it: ops that keep state elsewhere then warn of that.
  void expect_checkpoints() { has_checkpoints_ = true; }
  bool has_checkpoints() const { return has_checkpoints_; }

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

  /// Used by get_variable(): where a variable is kept that a call on `device` makes.
  c10::Device place_of_variable(c10::Device device) const;

  /// Used by get_variable(): makes a variable and gives it its first value, which is the same in
  /// all towers. `tower_prefix` is put before the name of a replica.
  Variable& create_variable(const std::string& name, at::IntArrayRef shape,
                            const VariableOptions& options, c10::Device device,
                            const std::string& tower_prefix = "");

  /// Used by adopt(): makes a variable of a tensor that somebody else made and keeps using.
  Variable& adopt_variable(const std::string& name, const at::Tensor& tensor, VariableRole role,
                           const std::string& tower_prefix = "");

  /// The graph's own T, which lives as long as it does: made by the first call, found by later
  /// ones.
  template <typename T>
  T& attached() {
    std::shared_ptr<void>& kept = attachment(typeid(T));
    if (!kept) kept = std::make_shared<T>();
    return *static_cast<T*>(kept.get());
  }

 private:
  std::shared_ptr<void>& attachment(const std::type_info& type);
  void check_not_final(const std::string& name) const;
  at::Generator generator(const std::string& stream, c10::Device device);
  void build(Op::State& state);
  bool give_up_channels_last();

  GraphOptions options_;
  uint64_t seed_;
  struct Kept;
  detail::Pimpl<Kept> kept_;
  VariableStore variables_;
  mutable std::recursive_mutex variables_mutex_;
  std::atomic<int64_t> announced_changes_ = 0;
  Variable* global_step_ = nullptr;
  std::vector<Op> ops_;
  bool final_ = false;
  bool layout_locked_ = false;
  bool has_checkpoints_ = false;
  bool channels_last_used_ = false;
};

/// While it lives, this thread runs a part of what another thread runs, which holds the graph's
/// lock_variables(). To lock them on this thread would wait for that very run, and throws.
class [[nodiscard]] PartOfRunScope {
 public:
  explicit PartOfRunScope(const Graph& graph);
  ~PartOfRunScope();
  PartOfRunScope(const PartOfRunScope&) = delete;
  PartOfRunScope& operator=(const PartOfRunScope&) = delete;

 private:
  const Graph* outer_;
};

}  // namespace tensorpack
