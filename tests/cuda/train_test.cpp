// SPDX-License-Identifier: Apache-2.0
// Whole trainings on the GPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/loss_scale.h"
#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/train/train_config.h"
#include "tests/cuda/device.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

using at::Tensor;
using testing::HasSubstr;
using testing::Not;

// Which of four quadrants of an image is brightest.
std::vector<DataPoint> quadrants(int batches) {
  const at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  std::vector<DataPoint> points;
  for (int i = 0; i < batches; ++i) {
    const Tensor label = at::randint(0, 4, {32}, generator, at::TensorOptions(at::kLong));
    Tensor image = at::randint(0, 100, {32, 1, 8, 8}, generator, at::TensorOptions(at::kByte));
    for (int64_t k = 0; k < 32; ++k) {
      const auto quadrant = label[k].item<int64_t>();
      image[k][0].narrow(0, 4 * (quadrant / 2), 4).narrow(1, 4 * (quadrant % 2), 4).add_(100);
    }
    points.push_back({image, label});
  }
  return points;
}

Tensor quadrant_cost(const Tensor& image, const Tensor& label) {
  // Bytes cross the bus; floats are made where they are used.
  Tensor x = image.to(at::kFloat).sub(128).div(64);
  x = Conv2D("conv0", x, {.filters = 8, .kernel_size = 3});
  x = Dropout("drop", BNReLU("bn0", x), {.rate = 0.1});
  const Tensor logits = named("logits", FullyConnected("fc", x, {.units = 4}));
  named("accuracy", logits.argmax(1).eq(label).to(at::kFloat).mean());
  return named("cost", at::cross_entropy_loss(logits.to(at::kFloat), label));
}

std::vector<TensorSpec> quadrant_inputs() {
  return {{"image", {-1, 1, 8, 8}, at::kByte}, {"label", {-1}, at::kLong}};
}

class CudaTrainTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    directory_ = std::filesystem::temp_directory_path() /
                 (std::string("tensorpack_cuda_") +
                  testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    at::manual_seed(1);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  TrainConfig config(Precision precision, Owned<Optimizer> optimizer = Adam({.lr = 0.01})) {
    return {
        .model = Model{.inputs = quadrant_inputs(),
                       .build_graph = quadrant_cost,
                       .optimizer = std::move(optimizer)},
        .dataflow = FromList(quadrants(8)),
        .callbacks = {ModelSaver({.checkpoint_dir = directory_})},
        .monitors = OwnedList<MonitorBase>(),
        .session = {.precision = precision},
        .steps_per_epoch = 8,
        .max_epoch = 8,
    };
  }

  // The trained model on data it has not seen.
  double accuracy(c10::Device device, Precision precision = Precision::kFloat32) {
    OfflinePredictor predict({
        .inputs = quadrant_inputs(),
        .tower_func = quadrant_cost,
        .session_init = SaverRestore(directory_),
        .input_names = {"image", "label"},
        .output_names = {"accuracy"},
        .session = {.precision = device.is_cuda() ? precision : Precision::kFloat32},
        .graph = {.device = device},
    });
    const DataPoint point = quadrants(1)[0];
    return predict(point[0], point[1])[0].item<double>();
  }

  std::filesystem::path directory_;
};

TEST_F(CudaTrainTest, TrainsInEveryPrecisionAndPredictsOnBothDevices) {
  for (const Precision precision : {Precision::kFloat32, Precision::kTf32, Precision::kBFloat16}) {
    SimpleTrainer trainer({.device = at::kCUDA});
    const std::string log =
        stdout_of([&] { launch_train_with_config(config(precision), trainer); });
    EXPECT_THAT(log, HasSubstr("by a StagingInput"));
    EXPECT_THAT(log, Not(HasSubstr("cannot be captured"))) << log;
    EXPECT_GT(accuracy(at::kCUDA, precision), 0.9) << to_string(precision);
    EXPECT_GT(accuracy(at::kCPU), 0.9) << to_string(precision);
    for (const Variable* variable : trainer.variables().trainable()) {
      EXPECT_TRUE(variable->tensor.is_cuda());
      EXPECT_EQ(variable->tensor.scalar_type(), at::kFloat);
    }
  }
}

TEST_F(CudaTrainTest, DataIsStagedWithoutATrainConfigToo) {
  SimpleTrainer trainer({.device = at::kCUDA});
  const std::string log = stdout_of([&] {
    trainer.setup_graph(quadrant_inputs(), QueueInput(FromList(quadrants(8))), quadrant_cost,
                        Adam({.lr = 0.01}));
  });
  EXPECT_THAT(log, HasSubstr("by a StagingInput"));
  trainer.train({.steps_per_epoch = 8, .max_epoch = 2});
}

TEST_F(CudaTrainTest, Float16TrainsWithLossScaling) {
  SimpleTrainer trainer({.device = at::kCUDA});
  // So large that the first steps overflow and the scale must come down by itself.
  launch_train_with_config(
      config(Precision::kFloat16,
             LossScaleOptimizer(Adam({.lr = 0.01}), {.first = 1e9, .growth_interval = 1000})),
      trainer);
  EXPECT_LT(trainer.variables().at("loss_scale").tensor.item<double>(), 1e8);
  EXPECT_GT(accuracy(at::kCUDA, Precision::kFloat16), 0.9);
}

TEST_F(CudaTrainTest, CheckpointsGoFromDeviceToDeviceUnchanged) {
  SimpleTrainer first({.device = at::kCUDA});
  launch_train_with_config(config(Precision::kFloat32), first);
  // CUDA -> file -> CPU -> file -> CUDA.
  SimpleTrainer on_cpu;
  TrainConfig none = config(Precision::kFloat32);
  none.session_init = SaverRestore(directory_, {.training_state = true});
  none.max_epoch = 0;
  launch_train_with_config(std::move(none), on_cpu);
  SimpleTrainer back({.device = at::kCUDA});
  none = config(Precision::kFloat32);
  NamedTensors values;
  for (const Variable& variable : on_cpu.variables().all()) {
    if (variable.is_saved()) values.emplace(variable.name, variable.tensor.detach().clone());
  }
  none.session_init = DictRestore(values);
  none.max_epoch = 0;
  launch_train_with_config(std::move(none), back);
  for (const Variable& variable : first.variables().all()) {
    if (!variable.is_saved()) continue;
    const Tensor expected = variable.tensor.detach().cpu();
    EXPECT_TRUE(at::equal(expected, on_cpu.variables().at(variable.name).tensor.detach()))
        << variable.name;
    EXPECT_TRUE(at::equal(expected, back.variables().at(variable.name).tensor.detach().cpu()))
        << variable.name;
  }
}

TEST_F(CudaTrainTest, InferenceRunsBetweenCapturedSteps) {
  SimpleTrainer trainer({.device = at::kCUDA});
  TrainConfig with_inference = config(Precision::kBFloat16);
  with_inference.callbacks = {InferenceRunner(FromList(quadrants(3)), {ScalarStats({"accuracy"})})};
  const std::string log =
      stdout_of([&] { launch_train_with_config(std::move(with_inference), trainer); });
  EXPECT_GT(trainer.monitors().get_latest("validation_accuracy"), 0.9) << log;
}

TEST_F(CudaTrainTest, DataOfTheInferenceRunnerIsCopiedAhead) {
  SimpleTrainer trainer({.device = at::kCUDA});
  TrainConfig with_inference = config(Precision::kFloat32);
  std::atomic<int> read_by_the_loop = 0;
  std::atomic<int> read_ahead = 0;
  DataFlowPtr data =
      FromList(quadrants(3)) | map([&, loop = std::this_thread::get_id()](DataPoint point) {
        ++(std::this_thread::get_id() == loop ? read_by_the_loop : read_ahead);
        return point;
      });
  with_inference.callbacks = {InferenceRunner(std::move(data), {ScalarStats({"accuracy"})})};
  stdout_of([&] { launch_train_with_config(std::move(with_inference), trainer); });
  EXPECT_EQ(read_by_the_loop, 0);
  EXPECT_GE(read_ahead, 3);
}

}  // namespace
}  // namespace tensorpack::test
