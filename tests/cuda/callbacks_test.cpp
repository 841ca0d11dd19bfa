// SPDX-License-Identifier: Apache-2.0
// Callbacks that look at the device, or at what runs on it.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "tensorpack/callbacks/check_numerics.h"
#include "tensorpack/callbacks/graph_profiler.h"
#include "tensorpack/callbacks/resource_trackers.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/device_memory.h"
#include "tensorpack/train/train_config.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/nvml.h"
#include "tests/cuda/device.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kSteps = 6;

class CudaCallbacksTest : public CudaTest {
 protected:
  // One epoch, on batches that come again and again.
  static void train(SimpleTrainer& trainer, std::vector<TensorSpec> inputs, const TowerFunc& model,
                    std::vector<DataPoint> batches, OwnedList<Callback> callbacks) {
    stdout_of([&] {
      launch_train_with_config(
          {
              .model = Model{.inputs = std::move(inputs),
                             .build_graph = model,
                             .optimizer = SGD({.lr = 0.01})},
              .dataflow = FromList(std::move(batches)) | repeat(),
              .callbacks = std::move(callbacks),
              .monitors = OwnedList<MonitorBase>(),
              .session = {.deterministic = true},
              .steps_per_epoch = kSteps,
              .max_epoch = 1,
          },
          trainer);
    });
  }
};

// Keeps products as large as its input for the backward pass.
Tensor products(const Tensor& x) {
  const Tensor w = get_variable("w", {}, init::ones());
  return named("cost", ((x * w).exp() * w).mean());
}

TEST_F(CudaCallbacksTest, PeakMemoryIsThatOfTheTensorsOfThisTraining) {
  const auto peak_of_training = [](int64_t elements) {
    SimpleTrainer trainer({.device = at::kCUDA});
    train(trainer, {{"x", {-1, elements}}}, products, {{at::zeros({1, elements})}},
          {PeakMemoryTracker()});
    return trainer.monitors().get_latest("PeakMemory(MB)/gpu:0");
  };
  // What is left of earlier trainings stays: workspaces of cuBLAS, one for each stream.
  reset_peak_device_memory();
  const double before = static_cast<double>(peak_device_memory()[0]) / (1 << 20);
  const double large = peak_of_training(16 << 20) - before;  // 64 MB
  const double small = peak_of_training(1 << 20) - before;
  EXPECT_GE(large, 2 * 64) << "the batch and what the backward pass needs";
  EXPECT_GE(small, 2 * 4);
  EXPECT_LT(small, large / 4) << "what a training before it took does not count";
}

TEST_F(CudaCallbacksTest, UtilizationIsAskedForWithinTheEpoch) {
  if (!Nvml::open()) GTEST_SKIP() << "there is no NVML";
  SimpleTrainer trainer({.device = at::kCUDA});
  const auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1300)); };
  train(trainer, {{"x", {-1, 8}}}, products, {{at::zeros({2, 8})}},
        {GPUUtilizationTracker(), ActAt("trigger_step", 1, wait)});
  EXPECT_GE(trainer.monitors().get_latest("GPUUtil/0"), 0);
  EXPECT_LE(trainer.monitors().get_latest("GPUUtil/0"), 100);
}

TEST_F(CudaCallbacksTest, UtilizationOfADeviceThatIsNotThereIsAnError) {
  if (!Nvml::open()) GTEST_SKIP() << "there is no NVML";
  SimpleTrainer trainer({.device = at::kCUDA});
  EXPECT_THAT(
      [&] {
        train(trainer, {{"x", {-1, 8}}}, products, {{at::zeros({2, 8})}},
              {GPUUtilizationTracker({99})});
      },
      ThrowsMessage<Error>(HasSubstr("[GPUUtilizationTracker] there is no device 99")));
}

Tensor network(const Tensor& image, const Tensor& label) {
  Tensor x = Conv2D("conv0", image, {.filters = 8, .kernel_size = 3});
  x = Dropout("drop", BNReLU("bn0", x), {.rate = 0.5});
  const Tensor logits = FullyConnected("fc", x, {.units = 4});
  return named("cost", at::cross_entropy_loss(logits, label));
}

// Takes what a profiler has found when training has ended.
class TakesTimes final : public Callback {
 public:
  TakesTimes(GraphProfiler profiler, std::vector<OperatorTime>* times)
      : profiler_(std::move(profiler)), times_(times) {}
  void setup_graph() override {
    profiler_.attach(trainer());
    profiler_.setup_graph();
  }
  void before_train() override { profiler_.before_train(); }
  RunArgs before_run(RunContext& context) override { return profiler_.before_run(context); }
  void after_run(RunContext& context, const FetchedValues& values) override {
    profiler_.after_run(context, values);
  }
  void after_train() override { *times_ = profiler_.times(); }

 private:
  GraphProfiler profiler_;
  std::vector<OperatorTime>* times_;
};

TEST_F(CudaCallbacksTest, TheProfileIsOfFusedOperatorsAndTheirLayers) {
  std::vector<OperatorTime> times;
  SimpleTrainer trainer({.device = at::kCUDA});
  train(trainer, {{"image", {-1, 3, 8, 8}}, {"label", {-1}, at::kLong}}, network,
        {{at::rand({4, 3, 8, 8}), at::zeros({4}, at::kLong)}},
        {TakesTimes(GraphProfiler({.first_step = 3, .repetitions = 2}), &times)});
  ASSERT_FALSE(times.empty());
  std::map<std::string, std::set<bool>> directions;  // of each layer
  std::set<std::string> operators;
  double seconds = 0;
  for (const OperatorTime& time : times) {
    directions[time.origin.layer].insert(time.origin.is_backward);
    operators.insert(time.origin.op);
    EXPECT_GE(time.seconds, 0);
    seconds += time.seconds;
  }
  EXPECT_GT(seconds, 0);
  EXPECT_TRUE(operators.contains("tensorpack::batch_norm_act"))
      << testing::PrintToString(operators);
  for (const char* layer : {"conv0", "bn0/bn", "fc"}) {
    EXPECT_EQ(directions[layer].size(), 2u) << layer << ": forward and backward";
  }
}

std::map<std::string, Tensor> weights_of(SimpleTrainer& trainer) {
  std::map<std::string, Tensor> weights;
  for (const Variable& variable : trainer.variables().all()) {
    weights.emplace(variable.name, variable.tensor.detach().cpu().clone());
  }
  return weights;
}

TEST_F(CudaCallbacksTest, LookingInsideChangesNothingOfATraining) {
  const auto trained = [&](OwnedList<Callback> callbacks) {
    at::manual_seed(3);
    SimpleTrainer trainer({.device = at::kCUDA, .seed = 3});
    train(trainer, {{"image", {-1, 3, 8, 8}}, {"label", {-1}, at::kLong}}, network,
          {{at::ones({4, 3, 8, 8}), at::zeros({4}, at::kLong)}}, std::move(callbacks));
    return weights_of(trainer);
  };
  const auto plain = trained({});
  const auto watched =
      trained({GraphProfiler({.first_step = 2, .repetitions = 1}), CheckNumerics()});
  ASSERT_EQ(plain.size(), watched.size());
  for (const auto& [name, value] : plain) EXPECT_TRUE(at::equal(value, watched.at(name))) << name;
}

Tensor entropy(const Tensor& x) {
  Tensor y = FullyConnected("hidden", x, {.units = 4}).mean();
  {
    const VariableScope scope("entropy");
    y = y + (x.log() * x).mean();
  }
  return named("cost", y);
}

TEST_F(CudaCallbacksTest, TheFirstNaNIsTracedToItsOperator) {
  const auto train_to_nan = [] {
    SimpleTrainer trainer({.device = at::kCUDA});
    train(trainer, {{"x", {-1, 3}}}, entropy,
          {{at::ones({3, 3})}, {at::ones({3, 3})}, {at::eye(3)}}, {CheckNumerics()});
  };
  EXPECT_THAT(train_to_nan,
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("[CheckNumerics] 'cost' is NaN at global_step 3"),
                        HasSubstr("aten::mul in layer 'entropy' is the first to give NaN"),
                        HasSubstr("of infinities that aten::log in layer 'entropy' gave"))));
}

}  // namespace
}  // namespace tensorpack::test
