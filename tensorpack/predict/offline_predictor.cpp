// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include <ATen/ATen.h>

#include "tensorpack/tower/tower_context.h"

namespace tensorpack {

OfflinePredictor::OfflinePredictor(PredictConfig config)
    : graph_(std::make_unique<Graph>(config.graph)) {
  config.tower_func.check_arity(config.inputs);
  const Op op = graph_->define({
      .name = "predict",
      .inputs = std::move(config.inputs),
      .body =
          [graph = graph_.get(),
           tower_func = std::move(config.tower_func)](const std::vector<at::Tensor>& inputs) {
            at::NoGradGuard no_grad;
            TowerContext tower(*graph, {.is_training = false});
            tower_func(inputs);
            return tower.call().named_tensors();
          },
  });
  if (config.session_init) config.session_init->init(*graph_);
  graph_->finalize();
  session_ = std::make_unique<Session>(*graph_, config.session);
  predictor_ = std::make_unique<OnlinePredictor>(
      *graph_, TowerHandle(*graph_, "", /*is_training=*/false, op),
      PredictorOptions{.input_names = std::move(config.input_names),
                       .output_names = std::move(config.output_names)},
      [session = session_.get()]() -> Session& { return *session; });
}

OfflinePredictor::~OfflinePredictor() = default;

}  // namespace tensorpack
