// SPDX-License-Identifier: Apache-2.0
// What a session can run.
#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tensorpack/graph/input_feeder.h"
#include "tensorpack/graph/named_tensors.h"
#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

class ExchangeGroup;
class Graph;

/// What an op computes, as plain libtorch code: opens a CallScope or TowerContext of its own, and
/// returns the tensors that can be fetched.
using OpBody = std::function<NamedTensors(const std::vector<at::Tensor>& inputs)>;

/// Something a session can run: a function that is recorded as a program, several ops in order or
/// at once, or a plain host function. A cheap handle; copies name the same op.
class Op {
 public:
  Op() = default;

  /// A host function: run as it is, never recorded.
  static Op host(std::string name, std::function<void()> function);
  /// Runs the members one after another, as one evaluation. The batches of all members are taken
  /// before the first one runs.
  static Op group(std::string name, std::vector<Op> members);
  /// Runs recorded functions at once, each on a thread of its own that stays. What they exchange
  /// goes through `exchange`, in which they have the numbers of their places here. An input that is
  /// fed is fed to all; a name that several have is fetched from the first. The first exception
  /// ends the run in all of them and is thrown with the name of the op it came from.
  static Op parallel(std::string name, std::vector<Op> members,
                     std::shared_ptr<ExchangeGroup> exchange = nullptr);
  /// An op that does nothing: callbacks still see the run.
  static Op nothing();

  explicit operator bool() const { return state_ != nullptr; }
  bool operator==(const Op& other) const = default;

  const std::string& name() const;
  const std::vector<TensorSpec>& inputs() const;
  /// Where a recorded function runs; its inputs are brought there.
  c10::Device device() const;
  /// The tensors the op named when it was built; their first dimension is that of the trial input.
  const std::map<std::string, TensorSpec>& outputs() const;
  bool has_output(const std::string& name) const;
  bool has_input(const std::string& name) const;
  /// What `name` means in a run of this op or of its members: an input before a tensor that the op
  /// named, the first member before the others; nullopt if it is neither.
  std::optional<TensorSpec> find_tensor(const std::string& name) const;

  /// Calls the function of a program op, which gives its named tensors; of those that layers named,
  /// the ones in `fetches`.
  NamedTensors run_body(const std::vector<at::Tensor>& inputs,
                        const std::vector<std::string>& fetches) const;

  struct State;
  const State& state() const { return *state_; }

 private:
  friend class Graph;
  explicit Op(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  static Op make_group(State state, std::vector<Op> members);
  std::shared_ptr<const State> state_;
};

/// A tensor that a session can fetch: `op` computes it under `name`.
struct TensorRef {
  Op op = {};
  std::string name = {};
};

struct Op::State {
  enum class Kind { kProgram, kGroup, kParallel, kHost };
  Kind kind = Kind::kHost;
  std::string name = {};
  c10::Device device = c10::kCPU;  // kProgram
  std::vector<TensorSpec> inputs = {};
  std::map<std::string, TensorSpec> outputs = {};
  std::set<std::string> looked_up = {};   // kProgram: outputs that the body itself uses by name
  OpBody body = {};                       // kProgram
  InputFeeder feeder = {};                // kProgram
  at::Generator generator = {};           // kProgram: what its operators draw from
  at::Generator defaults_draw_from = {};  // kProgram: on the CPU; undefined without defaults
  int tower = 0;                          // kProgram: those of different towers may run at once
  std::vector<Op> members = {};           // kGroup, kParallel
  std::shared_ptr<ExchangeGroup> exchange = {};  // kParallel; may be null
  std::function<void()> function = {};           // kHost
};

}  // namespace tensorpack
