// SPDX-License-Identifier: Apache-2.0
// Predictions for what an input source delivers.
//
//   FeedfreePredictor predict(config, StagingInput(QueueInput(images, {.infinite = false})));
//   while (auto outputs = predict()) write(*outputs);
#pragma once

#include <optional>
#include <vector>

#include "tensorpack/input_source/input_source.h"
#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// A predictor that takes its inputs from a source, so that batches are made, and brought to the
/// device, while others are computed. To be called by one thread at a time.
class FeedfreePredictor {
 public:
  FeedfreePredictor(PredictConfig config, Owned<InputSource> source);

  /// The outputs for the next batch; nullopt at the end of the data.
  std::optional<std::vector<at::Tensor>> operator()();

 private:
  OfflinePredictor predict_;
  Owned<InputSource> source_;
};

}  // namespace tensorpack
