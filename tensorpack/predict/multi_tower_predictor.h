// SPDX-License-Identifier: Apache-2.0
// Predictions at the same time: on several GPUs, or on several threads of the CPU.
//
//   MultiTowerOfflinePredictor towers(config, Devices::first(4));            // GPUs 0 to 3
//   std::jthread worker([predict = towers[2]] { predict(image); });
#pragma once

#include <vector>

#include "tensorpack/parallel/data_parallel.h"
#include "tensorpack/predict/offline_predictor.h"

namespace tensorpack {

/// One predictor per tower, each of which may be called while others run. Towers on one device
/// share their variables; every other device has a copy.
class MultiTowerOfflinePredictor {
 public:
  explicit MultiTowerOfflinePredictor(PredictConfig config, const Devices& devices = {});

  /// Of one tower. It shares what it needs and may outlive this object.
  const OfflinePredictor& operator[](size_t tower) const;
  const std::vector<OfflinePredictor>& predictors() const { return predictors_; }
  size_t size() const { return predictors_.size(); }

  /// By the first tower.
  template <typename... Inputs>
  std::vector<at::Tensor> operator()(const Inputs&... inputs) const {
    return predictors_[0](inputs...);
  }

 private:
  std::vector<OfflinePredictor> predictors_;
};

}  // namespace tensorpack
