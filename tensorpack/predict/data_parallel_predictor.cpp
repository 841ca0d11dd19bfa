// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/data_parallel_predictor.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/worker_team.h"

namespace tensorpack {

DataParallelOfflinePredictor::DataParallelOfflinePredictor(PredictConfig config,
                                                           const Devices& devices)
    : towers_(std::move(config), devices),
      team_(std::make_unique<WorkerTeam>("predict", towers_.size())) {}

DataParallelOfflinePredictor::DataParallelOfflinePredictor(
    DataParallelOfflinePredictor&&) noexcept = default;
DataParallelOfflinePredictor& DataParallelOfflinePredictor::operator=(
    DataParallelOfflinePredictor&&) noexcept = default;
DataParallelOfflinePredictor::~DataParallelOfflinePredictor() = default;

std::vector<std::vector<at::Tensor>> DataParallelOfflinePredictor::operator()(
    const std::vector<std::vector<at::Tensor>>& inputs) const {
  TP_CHECK(inputs.size() <= size(), "DataParallelOfflinePredictor",
           "there are inputs for {}, but only {}. Pass a list of inputs for each.",
           counted(std::ssize(inputs), "tower"), counted(static_cast<int64_t>(size()), "tower"));
  std::vector<std::vector<at::Tensor>> outputs(inputs.size());
  const auto failure = team_->run([&](size_t i) {
    if (i < inputs.size()) outputs[i] = towers_[i](inputs[i]);
  });
  if (failure) std::rethrow_exception(failure->exception);
  return outputs;
}

}  // namespace tensorpack
