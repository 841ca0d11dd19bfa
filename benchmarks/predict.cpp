// SPDX-License-Identifier: Apache-2.0
// What inference costs beyond running the model, and what many callers gain by being served
// together.
#include <ATen/ATen.h>

#include <thread>

#include "benchmarks/groups.h"
#include "benchmarks/silence.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/predict/async_predictor.h"
#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/train/tower_trainer.h"
#include "tensorpack/utils/startup.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

constexpr int64_t kFeatures = 784;

at::Tensor mlp(const at::Tensor& x) {
  at::Tensor l = FullyConnected("fc0", x, {.units = 512, .activation = at::relu});
  l = FullyConnected("fc1", l, {.units = 512, .activation = at::relu});
  return FullyConnected("linear", l, {.units = 10});
}

// Evaluates the model in every epoch, of which there are as many as asked for.
class Evaluation final : public TowerTrainer {
 public:
  explicit Evaluation(const at::Tensor& batch) {
    const auto tower = [](const at::Tensor& x) { named("mean", mlp(x).mean()); };
    setup_tower({{"x", {-1, kFeatures}}}, FeedInput(FromList({{batch}})), tower);
    set_train_op(define("step", {}));  // where the variables are made
  }
};

// Times one callback: it stands before it and after it in the list.
class Mark final : public Callback {
 public:
  explicit Mark(std::function<void()> action) : action_(std::move(action)) {}
  void trigger_epoch() override { action_(); }

 private:
  std::function<void()> action_;
};

constexpr int kBatches = 50;

// Seconds of `passes` over the batches by InferenceRunner, after one that is not counted.
double inference_seconds(const at::Tensor& batch, int64_t passes) {
  const Silence silence;
  Timer timer;
  double seconds = 0;
  int64_t done = 0;
  Evaluation trainer(batch);
  trainer.train({.callbacks = {Mark([&] { timer = Timer(); }),
                               InferenceRunner(FromList(std::vector<DataPoint>(kBatches, {batch})),
                                               {ScalarStats({"mean"})}),
                               Mark([&] { seconds += done++ > 0 ? timer.seconds() : 0; })},
                 .steps_per_epoch = 1,
                 .max_epoch = passes + 1});
  return seconds;
}

// The same batches through a session that is asked for the same scalar.
double replay_seconds(const at::Tensor& batch, int64_t passes) {
  const Silence silence;
  OfflinePredictor predict({.inputs = {{"x", {-1, kFeatures}}},
                            .tower_func = [](const at::Tensor& x) { named("mean", mlp(x).mean()); },
                            .output_names = {"mean"}});
  double sum = 0;
  const auto pass = [&] {
    for (int i = 0; i < kBatches; ++i) sum += predict(batch)[0].item<double>();
  };
  pass();
  const Timer timer;
  for (int64_t i = 0; i < passes; ++i) pass();
  return timer.seconds();
}

// Seconds in which so many callers make `requests` each, one after another.
double serve(int callers, int64_t requests, const std::function<void(const at::Tensor&)>& ask) {
  const at::Tensor x = at::randn({kFeatures});
  const Timer timer;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back([&] {
        for (int64_t k = 0; k < requests; ++k) ask(x);
      });
    }
  }
  return timer.seconds();
}

}  // namespace

void add_predict_benchmarks(Suite& suite) {
  suite.add("predict/inference_vs_replay", [](const Stopwatch& watch) {
    tune_process();
    const at::Tensor batch = at::randn({128, kFeatures});
    return watch.compare({
        .ours = [&](int64_t passes) { return inference_seconds(batch, passes); },
        .peer = [&](int64_t passes) { return replay_seconds(batch, passes); },
        .peer_name = "a session that runs the same batches",
    });
  });
  suite.add("predict/async_batching_vs_single", [](const Stopwatch& watch) {
    tune_process();
    constexpr int kCallers = 64;
    const OfflinePredictor predict({.inputs = {{"x", {-1, kFeatures}}},
                                    .tower_func = [](const at::Tensor& x) { named("y", mlp(x)); },
                                    .output_names = {"y"}});
    MultiThreadAsyncPredictor together(std::vector<OfflinePredictor>{predict},
                                       {.batch_size = kCallers});
    return watch.compare({
        .ours =
            [&](int64_t n) {
              return serve(kCallers, n, [&](const at::Tensor& x) { together.put_task({x}).get(); });
            },
        .peer =
            [&](int64_t n) {
              return serve(kCallers, n, [&](const at::Tensor& x) { predict(x.unsqueeze(0)); });
            },
        .peer_name = "64 callers, each with batches of 1",
    });
  });
}

}  // namespace tensorpack::bench
