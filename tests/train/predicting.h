// SPDX-License-Identifier: Apache-2.0
// Trainings whose predictor is asked while they go on: by the dataflow itself, by other threads.
#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "tensorpack/callbacks/start_proc_or_thread.h"
#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/predict/async_predictor.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/train/single_cost_trainer.h"

namespace tensorpack::predicting {

/// From a batch to an output for each row, with the variables of the training.
using Predict = std::function<at::Tensor(const at::Tensor& batch)>;

/// The predictor of a training, which exists later than the dataflow that asks it.
using Later = std::shared_ptr<Predict>;

/// Batches of its own predictions, of 1 to 3 rows, without end.
class Flow final : public DataFlow {
 public:
  explicit Flow(Later predict) : predict_(std::move(predict)) {}
  std::optional<DataPoint> next() override {
    const at::Tensor x = at::full({1 + count_++ % 3}, 0.5F);
    return DataPoint{x, (*predict_)(x) + 1};
  }

 private:
  Later predict_;
  int64_t count_ = 0;
};

/// Asks with batches of many sizes, each of which is prepared, until the training ends. What it
/// throws ends the training.
inline StartProcOrThread asking_thread(Later predict, std::atomic<int64_t>& answers) {
  return {"asking", [predict = std::move(predict), &answers](const std::stop_token& stop) {
            for (int64_t rows = 1; !stop.stop_requested(); rows = 1 + rows % 30) {
              (*predict)(at::full({rows}, 0.5F));
              ++answers;
            }
          }};
}

/// Gives `later` the predictor, which exists from setup_graph() on.
class MakePredictor final : public Callback {
 public:
  MakePredictor(TowerTrainer& trainer, Later later, bool async)
      : trainer_(trainer), later_(std::move(later)), async_(async) {}

  void setup_graph() override {
    const OnlinePredictor predictor = trainer_.get_predictor({"x"}, {"prediction"});
    const auto call = [predictor](const std::vector<at::Tensor>& inputs) {
      return predictor(inputs);
    };
    if (!async_) {
      *later_ = [call](const at::Tensor& batch) { return call({batch})[0]; };
      return;
    }
    const auto many = std::make_shared<MultiThreadAsyncPredictor>(
        std::vector<MultiThreadAsyncPredictor::Predictor>{call, call},
        AsyncPredictorOptions{.batch_size = 4});
    *later_ = [many](const at::Tensor& batch) {
      std::vector<PredictionFuture> rows;
      for (int64_t i = 0; i < batch.size(0); ++i) rows.push_back(many->put_task({batch[i]}));
      std::vector<at::Tensor> outputs;
      for (auto& row : rows) outputs.push_back(row.get()[0]);
      return at::stack(outputs);
    };
  }

 private:
  TowerTrainer& trainer_;
  Later later_;
  bool async_;
};

enum class Input { kQueue, kFeed, kInterruptibleFeed };

struct Training {
  Input input = Input::kQueue;
  int towers = 1;
  int threads = 0;     ///< that predict besides
  bool async = false;  ///< through a MultiThreadAsyncPredictor
  ExecutorKind executor = ExecutorKind::kDefault;
  int64_t steps = 60;
};

inline Owned<InputSource> make_input(Input input, const Later& predict) {
  if (input == Input::kQueue) return QueueInput(Flow(predict), {.capacity = 2});
  return FeedInput(Flow(predict), {.interruptible = input == Input::kInterruptibleFeed});
}

/// y = w x + b.
inline at::Tensor cost(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor prediction =
      named("prediction", get_variable("w", {}) * x + get_variable("b", {}));
  return named("cost", (prediction - y).square().mean());
}

inline std::unique_ptr<SingleCostTrainer> make_trainer(int towers) {
  if (towers == 1) return std::make_unique<SimpleTrainer>();
  return std::make_unique<SyncMultiGPUTrainerReplicated>(Devices::cpu(towers));
}

/// How many answers the threads got.
inline int64_t train(const Training& setup) {
  const auto predict = std::make_shared<Predict>();
  std::atomic<int64_t> answers = 0;
  const std::unique_ptr<SingleCostTrainer> trainer = make_trainer(setup.towers);
  trainer->setup_graph({{"x", {-1}}, {"y", {-1}}}, make_input(setup.input, predict), cost,
                       SGD({.lr = 1e-3}));
  OwnedList<Callback> callbacks = {MakePredictor(*trainer, predict, setup.async)};
  for (int i = 0; i < setup.threads; ++i) callbacks.add(asking_thread(predict, answers));
  trainer->train({.callbacks = std::move(callbacks),
                  .session = {.executor = setup.executor},
                  .steps_per_epoch = setup.steps,
                  .max_epoch = 2});
  *predict = nullptr;  // it keeps the graph, which keeps the flow, which keeps it
  return answers;
}

}  // namespace tensorpack::predicting
