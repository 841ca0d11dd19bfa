// SPDX-License-Identifier: Apache-2.0
// Trainers that minimise one cost.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/optim/optimizer.h"
#include "tensorpack/train/tower_trainer.h"

namespace tensorpack {

struct TrainConfig;

namespace detail {
// A TrainConfig, named or temporary. Not deduced from braces, which are options of a graph.
template <typename T>
concept IsTrainConfig = std::derived_from<std::remove_reference_t<T>, TrainConfig>;
}  // namespace detail

/// Builds the graph for you, from a function that returns the cost and an optimizer.
///
/// Every single-cost trainer can be constructed from a TrainConfig, which it consumes, and its own
/// arguments. It then trains without any: SimpleTrainer(std::move(config)).train().
class SingleCostTrainer : public TowerTrainer {
 public:
  using TowerTrainer::TowerTrainer;

  /// Defines what one step is; once. `get_cost` is the tower function: it returns the scalar cost,
  /// may be called several times, and in prediction mode, where what it returns is ignored.
  void setup_graph(std::vector<TensorSpec> inputs, Owned<InputSource> input, TowerFunc get_cost,
                   Owned<Optimizer> optimizer);
  /// The same with a function that returns the optimizer.
  template <std::invocable F>
  requires std::convertible_to<std::invoke_result_t<F>, Owned<Optimizer>>
  void setup_graph(std::vector<TensorSpec> inputs, Owned<InputSource> input, TowerFunc get_cost,
                   F get_optimizer) {
    setup_graph(std::move(inputs), std::move(input), std::move(get_cost),
                Owned<Optimizer>(get_optimizer()));
  }

  using TowerTrainer::train;
  /// launch_train_with_config() with the config that the trainer was constructed from.
  void train();

  /// Those of the optimizer.
  HyperParams hyper_params() const override;
  /// What the tower function returned: "cost" unless that is the name of another tensor.
  std::vector<std::string> cost_names() const override;

 protected:
  /// Sets train_op from the towers: by default to the update of each.
  virtual void setup_train_op() { set_train_op(define_update()); }

  /// An op that minimises the cost of every tower.
  Op define_update();

  /// What train() will train with.
  void take_config(TrainConfig& config);

 private:
  std::shared_ptr<TrainConfig> config_;
  std::shared_ptr<Optimizer> optimizer_;    // shared with the op
  std::shared_ptr<std::string> cost_name_;  // set when the op is defined
};

/// One tower, one device: computes the gradients and applies them.
class SimpleTrainer final : public SingleCostTrainer {
 public:
  explicit SimpleTrainer(GraphOptions graph = {}) : SingleCostTrainer(graph) {}
  explicit SimpleTrainer(std::shared_ptr<Graph> graph) : SingleCostTrainer(std::move(graph)) {}
  template <detail::IsTrainConfig Config>
  explicit SimpleTrainer(Config&& config, GraphOptions graph = {}) : SingleCostTrainer(graph) {
    take_config(config);
  }
};

/// SimpleTrainer that insists on a QueueInput.
class QueueInputTrainer final : public SingleCostTrainer {
 public:
  explicit QueueInputTrainer(GraphOptions graph = {}) : SingleCostTrainer(graph) {}
  explicit QueueInputTrainer(std::shared_ptr<Graph> graph) : SingleCostTrainer(std::move(graph)) {}
  template <detail::IsTrainConfig Config>
  explicit QueueInputTrainer(Config&& config, GraphOptions graph = {}) : SingleCostTrainer(graph) {
    take_config(config);
  }

 protected:
  void setup_train_op() override;
};

/// Builds the model as SimpleTrainer does, but a step runs nothing: hooks, counters and schedules
/// still work. For runs of callbacks alone.
class NoOpTrainer final : public SingleCostTrainer {
 public:
  using SingleCostTrainer::SingleCostTrainer;
  template <detail::IsTrainConfig Config>
  explicit NoOpTrainer(Config&& config, GraphOptions graph = {}) : SingleCostTrainer(graph) {
    take_config(config);
  }
  void run_step() override { hooked_sess().run(Op::nothing()); }
};

}  // namespace tensorpack
