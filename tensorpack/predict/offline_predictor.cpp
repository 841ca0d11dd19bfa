// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include "tensorpack/predict/multi_tower_predictor.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

void detail::init_variables(const PredictConfig& config, Graph& graph) {
  if (config.session_init) {
    config.session_init->init(graph);
    return;
  }
  const auto count = std::ssize(graph.variables().trainable());
  if (count == 0) return;
  log::info("No session_init is given: the model has the first values of its {}.",
            counted(count, "variable"));
}

OfflinePredictor::OfflinePredictor(PredictConfig config)
    : OfflinePredictor(MultiTowerOfflinePredictor(std::move(config))[0]) {}

}  // namespace tensorpack
