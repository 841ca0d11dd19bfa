// SPDX-License-Identifier: Apache-2.0
// Predictions for many callers, several of whose requests are computed together.
//
//   MultiThreadAsyncPredictor predict(towers.predictors(), {.batch_size = 32});
//   std::future<std::vector<Tensor>> logits = predict.put_task({image});   // from any thread
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct AsyncPredictorOptions {
  /// How many requests are computed together at most.
  int64_t batch_size = 16;
  /// How long a request may wait for others to join it. 0 takes what is there: under load requests
  /// gather while earlier ones are computed.
  std::chrono::microseconds max_delay = std::chrono::microseconds(0);
  /// How many requests may wait for each predictor; put_task() waits when there are more.
  int64_t queue_size = 100;
  /// Whether batches are filled up to a power of two, with copies of their last request. A model is
  /// recorded once for each size of a batch: so there are few.
  bool pad = true;
};

/// Takes single datapoints, without a batch dimension, from any number of threads, and computes
/// those that wait together as one batch, on a thread for each predictor.
class MultiThreadAsyncPredictor {
 public:
  /// From the inputs of a batch to its outputs, whose first dimension is that of the batch. An
  /// OfflinePredictor or an OnlinePredictor is one.
  using Predictor = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  explicit MultiThreadAsyncPredictor(std::vector<Predictor> predictors,
                                     AsyncPredictorOptions options = {});
  /// Anything that a list of predictors is, such as MultiTowerOfflinePredictor::predictors().
  template <typename P>
  explicit MultiThreadAsyncPredictor(const std::vector<P>& predictors,
                                     AsyncPredictorOptions options = {})
      : MultiThreadAsyncPredictor(std::vector<Predictor>(predictors.begin(), predictors.end()),
                                  options) {}
  /// Computes what was asked for, and ends the threads.
  ~MultiThreadAsyncPredictor();
  MultiThreadAsyncPredictor(MultiThreadAsyncPredictor&&) noexcept;
  MultiThreadAsyncPredictor& operator=(MultiThreadAsyncPredictor&&) noexcept;

  /// The outputs for one datapoint, without a batch dimension. A failure of the model is thrown by
  /// the future of every datapoint of the batch; one that does not fit the others, by its own.
  std::future<std::vector<at::Tensor>> put_task(std::vector<at::Tensor> datapoint);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorpack
