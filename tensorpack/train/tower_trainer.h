// SPDX-License-Identifier: Apache-2.0
// Trainers whose model is a tower function.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/input_source/input_source.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/parallel/data_parallel.h"
#include "tensorpack/predict/online_predictor.h"
#include "tensorpack/tower/define_tower.h"
#include "tensorpack/tower/detail/enclosing_scope.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tensorpack/tower/tower_handle.h"
#include "tensorpack/train/trainer.h"

namespace tensorpack {

/// Base of all built-in trainers. A trainer of your own calls setup_tower() in its constructor and
/// then defines its ops; or call both on a TowerTrainer, and set_train_op():
///
///   d_op_ = define("d_op", [opt](TowerContext& tower) {
///     minimize(*opt, tower.tensor("d_loss"), "^discrim/");
///   });
///
/// With DataParallel in the constructor, each op has as many towers, and gradients are exchanged
/// between them: nothing else changes.
class TowerTrainer : public Trainer {
 public:
  /// On a graph of its own: SimpleTrainer trainer({.device = torch::kCUDA}).
  explicit TowerTrainer(GraphOptions graph = {});
  /// The graph may have been built before.
  explicit TowerTrainer(std::shared_ptr<Graph> graph);
  /// On several towers.
  explicit TowerTrainer(DataParallel parallel, GraphOptions graph = {});

  /// What the model is and where its inputs come from; once. The VariableScope that is open now is
  /// open in every tower of this training, those for prediction included: all names begin with it.
  /// For towers on GPUs the input is wrapped in a StagingInput, unless it is one.
  void setup_tower(std::vector<TensorSpec> inputs, Owned<InputSource> input, TowerFunc tower);

  /// An op that runs the training tower on a batch of its own and then `body`, which is given the
  /// tower; of several towers, each does. Only what the op updates or fetches is computed. The
  /// graph may outlive the trainer, so `body` must own what it uses.
  Op define(const std::string& name, TowerBody body);

  const DataParallel& parallel() const { return parallel_; }
  const TowerFunc& tower_func() const { return tower_func_; }
  const std::vector<TensorSpec>& input_signature() const { return inputs_; }
  /// Every tower built so far.
  const TowerHandles& towers() const { return towers_; }

  TowerHandle build_prediction_tower(PredictionTowerOptions options) override;

  OnlinePredictor get_predictor(std::vector<std::string> input_names,
                                std::vector<std::string> output_names,
                                std::optional<c10::Device> device = {}) override;

 protected:
  const InputSource& input() const { return *input_; }
  std::string place_of_step() const override;
  std::vector<FingerprintPart> data_fingerprint() const override;

 private:
  TowerHandle define_in_scope(TowerOptions options, TowerDefinition definition);
  std::vector<c10::Device> devices();
  TowerHandle define_tower_op(const std::string& name, const TowerBody& body, int index);

  DataParallel parallel_;
  TowerFunc tower_func_;
  EnclosingScope enclosing_scope_;  // of every tower
  std::vector<TensorSpec> inputs_;
  std::shared_ptr<InputSource> input_;  // shared with the ops
  InputFeeder feeder_;                  // of all ops
  TowerHandles towers_;
};

}  // namespace tensorpack
