// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include "tensorpack/tower/define_tower.h"

namespace tensorpack {

OfflinePredictor::OfflinePredictor(PredictConfig config)
    : graph_(std::make_unique<Graph>(config.graph)) {
  const TowerHandle tower = define_tower(
      *graph_, {.is_training = false},
      {.op_name = "predict", .inputs = std::move(config.inputs), .function = config.tower_func});
  if (config.session_init) config.session_init->init(*graph_);
  graph_->finalize();
  session_ = std::make_unique<Session>(*graph_, config.session);
  predictor_ = std::make_unique<OnlinePredictor>(
      *graph_, tower,
      PredictorOptions{.input_names = std::move(config.input_names),
                       .output_names = std::move(config.output_names)},
      [session = session_.get()]() -> Session& { return *session; });
}

OfflinePredictor::~OfflinePredictor() = default;

}  // namespace tensorpack
