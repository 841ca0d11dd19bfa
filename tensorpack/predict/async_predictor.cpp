// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/async_predictor.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <future>
#include <thread>

#include "tensorpack/utils/bounded_queue.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

using Clock = std::chrono::steady_clock;
using Predictor = MultiThreadAsyncPredictor::Predictor;

struct Task {
  std::vector<at::Tensor> inputs;
  std::promise<std::vector<at::Tensor>> result;
  Clock::time_point asked_at = Clock::now();
};

bool can_be_stacked(const Task& a, const Task& b) {
  return std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                    [](const at::Tensor& x, const at::Tensor& y) {
                      return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type();
                    });
}

std::vector<at::Tensor> stack(const std::vector<Task>& tasks, size_t size) {
  std::vector<at::Tensor> batch;
  for (size_t input = 0; input < tasks[0].inputs.size(); ++input) {
    std::vector<at::Tensor> column;
    for (size_t i = 0; i < size; ++i) {
      column.push_back(tasks[std::min(i, tasks.size() - 1)].inputs[input]);
    }
    batch.push_back(at::stack(column));
  }
  return batch;
}

void hand_out(const std::vector<at::Tensor>& outputs, int64_t size, std::vector<Task>& tasks) {
  for (const at::Tensor& output : outputs) {
    TP_CHECK(output.dim() > 0 && output.size(0) == size, "MultiThreadAsyncPredictor",
             "an output has the shape [{}] for a batch of {}. Only outputs with one row for each "
             "datapoint can be handed out.",
             fmt::join(output.sizes(), ", "), size);
  }
  std::vector<std::vector<at::Tensor>> rows(tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (const at::Tensor& output : outputs) rows[i].push_back(output[static_cast<int64_t>(i)]);
  }
  for (size_t i = 0; i < tasks.size(); ++i) tasks[i].result.set_value(std::move(rows[i]));
}

void compute(const Predictor& predict, bool pad, std::vector<Task>& tasks) {
  try {
    const size_t size = pad ? std::bit_ceil(tasks.size()) : tasks.size();
    hand_out(predict(stack(tasks, size)), static_cast<int64_t>(size), tasks);
  } catch (...) {
    for (Task& task : tasks) task.result.set_exception(std::current_exception());
  }
}

}  // namespace

struct PredictionFuture::State {
  explicit State(std::future<std::vector<at::Tensor>> future) : outputs(std::move(future)) {}
  std::future<std::vector<at::Tensor>> outputs;
};

std::vector<at::Tensor> PredictionFuture::get() {
  wait();
  return std::exchange(state_, nullptr)->outputs.get();
}

void PredictionFuture::wait() const {
  TP_CHECK(valid(), "PredictionFuture",
           "there are no outputs to wait for: get() moved them out. Keep what it returned.");
  state_->outputs.wait();
}

bool PredictionFuture::wait_for(std::chrono::microseconds time) const {
  TP_CHECK(valid(), "PredictionFuture",
           "there are no outputs to wait for: get() moved them out. Keep what it returned.");
  return state_->outputs.wait_for(time) == std::future_status::ready;
}

class MultiThreadAsyncPredictor::Impl {
 public:
  Impl(std::vector<Predictor> predictors, AsyncPredictorOptions options)
      : options_(options),
        queue_(static_cast<size_t>(options.queue_size) * std::max<size_t>(predictors.size(), 1)) {
    try {
      for (Predictor& predictor : predictors) {
        threads_.push_back(
            start_thread("predict", [this, predictor = std::move(predictor)] { work(predictor); }));
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Impl() { stop(); }

  std::future<std::vector<at::Tensor>> put(std::vector<at::Tensor> datapoint) {
    Task task{.inputs = std::move(datapoint), .result = {}};
    auto future = task.result.get_future();
    queue_.push(std::move(task));
    return future;
  }

 private:
  void stop() {
    queue_.close();
    for (std::thread& thread : threads_) thread.join();
  }

  void work(const Predictor& predict) {
    std::optional<Task> next = queue_.pop();
    while (next) {
      std::vector<Task> batch;
      batch.push_back(std::move(*next));
      next = gather(batch);
      compute(predict, options_.pad, batch);
      if (!next) next = queue_.pop();
    }
  }

  // Adds what may be computed together with the first; returns the one that may not.
  std::optional<Task> gather(std::vector<Task>& batch) {
    const Clock::time_point latest = batch[0].asked_at + options_.max_delay;
    while (static_cast<int64_t>(batch.size()) < options_.batch_size) {
      const auto patience = latest - Clock::now();
      std::optional<Task> task =
          patience > Clock::duration::zero() ? queue_.pop_for(patience) : queue_.try_pop();
      if (!task) break;
      if (!can_be_stacked(batch[0], *task)) return task;
      batch.push_back(std::move(*task));
    }
    return std::nullopt;
  }

  AsyncPredictorOptions options_;
  BoundedQueue<Task> queue_;
  std::vector<std::thread> threads_;  // last: they use the others
};

MultiThreadAsyncPredictor::MultiThreadAsyncPredictor(std::vector<Predictor> predictors,
                                                     AsyncPredictorOptions options) {
  TP_CHECK(!predictors.empty(), "MultiThreadAsyncPredictor",
           "there is no predictor. Pass at least one.");
  TP_CHECK(std::find(predictors.begin(), predictors.end(), nullptr) == predictors.end(),
           "MultiThreadAsyncPredictor", "a predictor is an empty function. Leave it out.");
  TP_CHECK(options.batch_size > 0 && options.queue_size > 0 && options.max_delay.count() >= 0,
           "MultiThreadAsyncPredictor",
           "batch_size {} and queue_size {} must be positive, and max_delay {} us not negative.",
           options.batch_size, options.queue_size, options.max_delay.count());
  impl_ = std::make_unique<Impl>(std::move(predictors), options);
}

MultiThreadAsyncPredictor::~MultiThreadAsyncPredictor() = default;
MultiThreadAsyncPredictor::MultiThreadAsyncPredictor(MultiThreadAsyncPredictor&&) noexcept =
    default;
MultiThreadAsyncPredictor& MultiThreadAsyncPredictor::operator=(
    MultiThreadAsyncPredictor&&) noexcept = default;

PredictionFuture MultiThreadAsyncPredictor::put_task(std::vector<at::Tensor> datapoint) {
  TP_CHECK(impl_ != nullptr, "MultiThreadAsyncPredictor",
           "it was moved from, and has no threads. Call the one that it was moved to.");
  TP_CHECK(!datapoint.empty(), "MultiThreadAsyncPredictor",
           "the datapoint has no tensors. Pass one for each input.");
  for (size_t i = 0; i < datapoint.size(); ++i) {
    TP_CHECK(datapoint[i].defined(), "MultiThreadAsyncPredictor",
             "component {} of the datapoint is an undefined tensor. Give it a value.", i);
  }
  return PredictionFuture(
      std::make_shared<PredictionFuture::State>(impl_->put(std::move(datapoint))));
}

}  // namespace tensorpack
