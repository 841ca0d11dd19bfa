// SPDX-License-Identifier: Apache-2.0
// Moving averages of weights on their way from the optimizer to a file: what is validated is what
// predicts.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/export/export_model.h"
#include "tensorpack/export/exported_model.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/optim/wrappers.h"
#include "tensorpack/predict/multi_tower_predictor.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/throws.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using at::Tensor;

Tensor averaged_model(const Tensor& x, const Tensor& y) {
  if (is_training()) return linear_cost(x, y);
  const auto averaged = use_moving_averages();
  return linear_cost(x, y);
}

PredictConfig predict_config(const std::filesystem::path& directory) {
  return {.inputs = linear_inputs(),
          .tower_func = averaged_model,
          .session_init = SaverRestore(directory),
          .input_names = {"x"},
          .output_names = {"prediction"}};
}

// Trains for an epoch, long before it fits; the checkpoint is in `directory`.
void train_for_an_epoch(SimpleTrainer& trainer, Owned<Optimizer> optimizer,
                        const std::filesystem::path& directory) {
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), averaged_model,
                      std::move(optimizer));
  trainer.train({.callbacks = {ModelSaver({.checkpoint_dir = directory}),
                               InferenceRunner(linear_data(), {ScalarStats({"cost"})})},
                 .steps_per_epoch = 4,
                 .max_epoch = 1});
}

TEST(AveragedWeightsTest, PredictorsAndExportsHaveTheAveragesThatWereValidated) {
  const TempDir directory;
  SimpleTrainer trainer;
  train_for_an_epoch(trainer, MovingAverageOptimizer(SGD({.lr = 0.05})), directory.path());
  const auto value = [&](const char* name) {
    return trainer.variables().at(name).tensor.detach().clone();
  };
  ASSERT_FALSE(at::allclose(value("w"), value("w/MovingAverage"), 0.1));
  const Tensor x = at::arange(3, at::kFloat);
  const Tensor expected = value("w/MovingAverage") * x + value("b/MovingAverage");
  EXPECT_TRUE(at::allclose(OfflinePredictor(predict_config(directory.path()))(x)[0], expected));
  const MultiTowerOfflinePredictor towers(predict_config(directory.path()), Devices::cpu(2));
  EXPECT_TRUE(at::allclose(towers[1](x)[0], expected));
  export_model(predict_config(directory.path()), directory / "model.tpx");
  EXPECT_TRUE(at::allclose(load_exported_model(directory / "model.tpx")(x)[0], expected));
  PredictConfig validation = predict_config(directory.path());
  validation.input_names = {};
  validation.output_names = {"cost"};
  const OfflinePredictor validate(std::move(validation));
  double sum = 0;
  int64_t batches = 0;
  FromList data = linear_data();
  while (const auto batch = data.next()) {
    sum += validate((*batch)[0], (*batch)[1])[0].item<double>();
    ++batches;
  }
  EXPECT_NEAR(sum / batches, trainer.monitors().get_latest("validation_cost"), 1e-6);
}

TEST(AveragedWeightsTest, WithoutAveragesNothingIsValidatedNorPredictedWithThem) {
  const TempDir directory;
  {
    SimpleTrainer trainer;
    EXPECT_ERROR(train_for_an_epoch(trainer, SGD({.lr = 0.05}), directory.path()),
                 "no variable has a moving average");
  }
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), averaged_model, SGD({.lr = 0.05}));
  trainer.train({.callbacks = {ModelSaver({.checkpoint_dir = directory.path()})},
                 .steps_per_epoch = 4,
                 .max_epoch = 1});
  EXPECT_ERROR(OfflinePredictor(predict_config(directory.path())),
               "has a moving average of no variable, and the model predicts with those of ");
  EXPECT_ERROR(export_program(predict_config(directory.path())),
               "has a moving average of no variable");
}

}  // namespace
}  // namespace tensorpack
