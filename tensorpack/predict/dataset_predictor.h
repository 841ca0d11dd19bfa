// SPDX-License-Identifier: Apache-2.0
// Predictions for a whole data set.
//
//   DatasetPredictor predictor(config, Files("images") | batch(32));
//   while (auto result = predictor.next()) write(*result);
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/predict/data_parallel_predictor.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// Runs a model over one pass of a dataflow, whose datapoints are the predictor's inputs. With
/// several towers as many datapoints are computed at a time; results come in the order of the data,
/// none missing at its end.
class DatasetPredictor {
 public:
  DatasetPredictor(PredictConfig config, Owned<DataFlow> data, const Devices& devices = {});

  /// The outputs for the next datapoint; nullopt at the end of the data.
  std::optional<std::vector<at::Tensor>> next();

  /// The outputs for all datapoints that are left.
  std::vector<std::vector<at::Tensor>> all();

 private:
  void compute_some();

  DataParallelOfflinePredictor predict_;
  Owned<DataFlow> data_;
  std::deque<std::vector<at::Tensor>> results_;
};

}  // namespace tensorpack
