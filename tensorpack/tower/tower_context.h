// SPDX-License-Identifier: Apache-2.0
// In which mode, on which device and with whose variables a tower function is being called.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"

namespace tensorpack {

struct ModelCosts;

struct TowerOptions {
  std::string name = {};  ///< "" for the only tower, "tower1" ...
  bool is_training = true;
  int index = 0;
  int total = 1;
  std::optional<c10::Device> device = {};  ///< the graph's when empty
  /// A replica's own copy of the variables lives under this prefix ("tower1/").
  std::string variable_prefix = {};
  /// True for towers that use the variables of an earlier one and may not add trainable ones.
  bool shares_variables = false;
  /// Whether gradients are averaged with other towers or processes (see graph/exchange.h).
  bool exchanges = false;
  /// How much of them is exchanged at a time.
  int64_t bucket_bytes = kDefaultBucketBytes;
  VariableUpdates updates = VariableUpdates::kOwn;
};

/// Opened around every call of a tower function, on the calling thread; ended by its destructor.
/// Contexts do not nest. In an open VariableScope, all names of the tower begin with that scope.
class [[nodiscard]] TowerContext {
 public:
  explicit TowerContext(Graph& graph, TowerOptions options = {});
  ~TowerContext();
  TowerContext(const TowerContext&) = delete;
  TowerContext& operator=(const TowerContext&) = delete;

  /// The context of the call in progress on this thread, or nullptr.
  static TowerContext* current();

  const std::string& name() const { return options_.name; }
  bool is_training() const { return options_.is_training; }
  /// True for the first training tower, the one that keeps statistics and summaries.
  bool is_main_training_tower() const { return options_.is_training && options_.index == 0; }
  bool has_own_variables() const { return !options_.shares_variables; }
  int index() const { return options_.index; }
  int total() const { return options_.total; }
  c10::Device device() const { return call_.options().device; }
  Graph& graph() { return call_.graph(); }
  CallScope& call() { return call_; }

  /// A tensor that this tower named; throws an Error with the nearest names when there is none.
  const at::Tensor& tensor(const std::string& name) const { return call_.tensor(name); }
  /// What the tower function returned; empty before.
  const std::vector<at::Tensor>& outputs() const { return outputs_; }
  void set_outputs(std::vector<at::Tensor> outputs) { outputs_ = std::move(outputs); }
  /// What every ModelDesc has set as its cost in this call; null before the first has.
  std::shared_ptr<ModelCosts>& model_costs() { return model_costs_; }
  /// The trainable variables of this tower whose names contain a match of the regular expression;
  /// throws an Error when there is none.
  std::vector<Variable*> trainable(const std::string& regex = "") { return call_.trainable(regex); }

 private:
  TowerOptions options_;
  CallScope call_;
  std::vector<at::Tensor> outputs_;
  std::shared_ptr<ModelCosts> model_costs_;
};

/// As TowerContext::current(), but throws an Error when no tower is being called.
TowerContext& get_current_tower_context();

/// True inside a tower in training mode; false in prediction and outside towers.
bool is_training();

}  // namespace tensorpack
