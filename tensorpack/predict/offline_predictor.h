// SPDX-License-Identifier: Apache-2.0
// Predictions with a trained model.
//
//   OfflinePredictor predict({
//       .inputs = model.inputs,
//       .tower_func = model.build_graph,
//       .session_init = SaverRestore("train_log/fashion_mnist"),
//       .input_names = {"image"},
//       .output_names = {"logits"},
//   });
//   Tensor logits = predict(images)[0];
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensorpack/predict/online_predictor.h"
#include "tensorpack/session/session_init.h"
#include "tensorpack/tower/tower_func.h"

namespace tensorpack {

/// What to predict, with what.
struct PredictConfig {
  std::vector<TensorSpec> inputs = {};
  /// Called in prediction mode; what it returns is ignored.
  TowerFunc tower_func = {};
  /// Where the variables come from; they keep their first values, with a warning, when empty.
  Owned<SessionInit> session_init = {};
  /// Whether weights that the outputs need, and session_init has no value for, or none that fits,
  /// may keep their first values. Otherwise they are an Error, but for those that
  /// RestoreOptions::ignore names.
  bool allow_missing = false;
  /// The inputs a call gives; all when empty.
  std::vector<std::string> input_names = {};
  /// The tensors a call returns.
  std::vector<std::string> output_names = {};
  SessionOptions session = {};
  GraphOptions graph = {};
};

namespace detail {
/// Gives the variables of the model, which `op` computes the outputs of, their values and, where
/// the model asks for them, those of their averages (restore_moving_averages()); or tells that they
/// keep their first ones.
void init_variables(const PredictConfig& config, Graph& graph, const Op& op);
}  // namespace detail

/// A predictor with a graph, variables and a session of its own, which copies of it share. Several
/// threads may call it: runs happen one after the other. For runs at the same time see
/// MultiTowerOfflinePredictor.
class OfflinePredictor {
 public:
  explicit OfflinePredictor(PredictConfig config);
  /// Of parts that others made; they live as long as it does.
  OfflinePredictor(std::shared_ptr<Graph> graph, std::shared_ptr<const OnlinePredictor> predictor);

  template <typename... Inputs>
  std::vector<at::Tensor> operator()(const Inputs&... inputs) const {
    return (*predictor_)(inputs...);
  }

  Graph& graph() { return *graph_; }
  const std::vector<std::string>& input_names() const { return predictor_->input_names(); }
  const std::vector<std::string>& output_names() const { return predictor_->output_names(); }

 private:
  std::shared_ptr<Graph> graph_;
  std::shared_ptr<const OnlinePredictor> predictor_;
};

}  // namespace tensorpack
