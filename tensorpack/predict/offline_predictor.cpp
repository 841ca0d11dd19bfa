// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include "tensorpack/predict/multi_tower_predictor.h"

namespace tensorpack {

OfflinePredictor::OfflinePredictor(PredictConfig config)
    : OfflinePredictor(MultiTowerOfflinePredictor(std::move(config))[0]) {}

}  // namespace tensorpack
