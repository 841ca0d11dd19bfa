// SPDX-License-Identifier: Apache-2.0
// Predictions for several batches at once, a batch for each tower.
//
//   DataParallelOfflinePredictor predict(config, Devices::first(2));        // GPUs 0 and 1
//   std::vector<std::vector<Tensor>> logits = predict({{images}, {others}});
#pragma once

#include <vector>

#include "tensorpack/predict/multi_tower_predictor.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

class WorkerTeam;

/// The towers of a MultiTowerOfflinePredictor, called together, on a thread each. To be called by
/// one thread at a time.
class DataParallelOfflinePredictor {
 public:
  explicit DataParallelOfflinePredictor(PredictConfig config, const Devices& devices = {});
  DataParallelOfflinePredictor(DataParallelOfflinePredictor&&) noexcept;
  DataParallelOfflinePredictor& operator=(DataParallelOfflinePredictor&&) noexcept;
  ~DataParallelOfflinePredictor();

  /// The outputs of each tower for its inputs. There may be inputs for fewer towers than there are,
  /// as at the end of a data set. What a tower throws is thrown when all are done.
  std::vector<std::vector<at::Tensor>> operator()(
      const std::vector<std::vector<at::Tensor>>& inputs) const;

  /// How many towers there are.
  size_t size() const { return towers_.size(); }

 private:
  MultiTowerOfflinePredictor towers_;
  detail::Pimpl<WorkerTeam> team_;  // a thread for each tower
};

}  // namespace tensorpack
