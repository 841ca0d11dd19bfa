// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/dataset_predictor.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

DatasetPredictor::DatasetPredictor(PredictConfig config, Owned<DataFlow> data,
                                   const Devices& devices)
    : predict_(std::move(config), devices), data_(std::move(data)) {
  TP_CHECK(static_cast<bool>(data_), "DatasetPredictor", "there is no data. Pass a dataflow.");
}

std::optional<std::vector<at::Tensor>> DatasetPredictor::next() {
  if (results_.empty()) compute_some();
  if (results_.empty()) return std::nullopt;
  std::vector<at::Tensor> result = std::move(results_.front());
  results_.pop_front();
  return result;
}

std::vector<std::vector<at::Tensor>> DatasetPredictor::all() {
  std::vector<std::vector<at::Tensor>> results;
  while (auto result = next()) results.push_back(std::move(*result));
  return results;
}

// One datapoint for each tower, or fewer at the end of the data.
void DatasetPredictor::compute_some() {
  std::vector<std::vector<at::Tensor>> datapoints;
  while (datapoints.size() < predict_.size()) {
    std::optional<DataPoint> datapoint = data_->next();
    if (!datapoint) break;
    datapoints.push_back(std::move(*datapoint).components());
  }
  for (auto& output : predict_(datapoints)) results_.push_back(std::move(output));
}

}  // namespace tensorpack
