// SPDX-License-Identifier: Apache-2.0
// Predictions for many callers, several of whose requests are computed together.
//
//   MultiThreadAsyncPredictor predict(towers.predictors(), {.batch_size = 32});
//   PredictionFuture logits = predict.put_task({image});   // from any thread
//   use(logits.get()[0]);
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "tensorpack/utils/detail/pimpl.h"
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

/// The outputs for one datapoint, which are computed meanwhile. Used as a std::future, whose header
/// would take every program 3 % of the time that libtorch's headers take to compile.
class PredictionFuture {
 public:
  PredictionFuture() = default;
  PredictionFuture(PredictionFuture&&) noexcept = default;
  PredictionFuture& operator=(PredictionFuture&&) noexcept = default;

  /// Waits for the outputs and moves them out: once. Throws what the model threw.
  std::vector<at::Tensor> get();
  void wait() const;
  /// Waits so long at most. Whether get() would not wait.
  bool wait_for(std::chrono::microseconds time) const;
  /// Whether there is something to get().
  bool valid() const { return state_ != nullptr; }

 private:
  friend class MultiThreadAsyncPredictor;
  struct State;
  explicit PredictionFuture(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
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
  PredictionFuture put_task(std::vector<at::Tensor> datapoint);

 private:
  class Impl;
  detail::Pimpl<Impl> impl_;
};

}  // namespace tensorpack
