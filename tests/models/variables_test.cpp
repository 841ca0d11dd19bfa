// SPDX-License-Identifier: Apache-2.0
// Regularisation, and variables that are frozen or replaced.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <vector>

#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv1d.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/conv2d_transpose.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/linear.h"
#include "tensorpack/models/regularize.h"
#include "tensorpack/models/replace_variables.h"
#include "tests/models/fixture.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;

const at::Tensor kInput = at::ones({2, 3});

TEST_F(LayersTest, RegularizeCostSearchesTheNames) {
  train();
  FullyConnected("fc0", kInput, {.units = 2});
  FullyConnected("fc1", kInput, {.units = 2});
  at::Tensor cost;
  const std::string log =
      stdout_of([&] { cost = regularize_cost("c0/.", l2_regularizer(0.1), "reg_cost"); });
  EXPECT_THAT(log, HasSubstr("2 variables by 'c0/.': fc0/W, fc0/b."));
  EXPECT_FLOAT_EQ(cost.item<float>(), 0.05F * variable("fc0/W").square().sum().item<float>());
  EXPECT_TRUE(tower_->call().named_tensors().contains("reg_cost"));
  EXPECT_FLOAT_EQ(regularize_cost("fc1/W", l1_regularizer(2)).item<float>(),
                  2 * variable("fc1/W").abs().sum().item<float>());
  train();
  EXPECT_EQ(stdout_of([&] { (void)regularize_cost("c0/.", l2_regularizer(0.1), "reg_cost"); }), "");
}

TEST_F(LayersTest, RegularizeCostIsZeroWithoutAMatchAndInPrediction) {
  train();
  FullyConnected("fc0", kInput, {.units = 2});
  EXPECT_EQ(regularize_cost("nothing", l2_regularizer(1)).item<float>(), 0);
  predict();
  EXPECT_EQ(regularize_cost("fc0", l2_regularizer(1)).item<float>(), 0);
}

TEST_F(LayersTest, RegularizeCostLooksAtTheVariablesOfItsTower) {
  train();
  FullyConnected("fc", kInput, {.units = 2});
  tower_.reset();
  tower_.emplace(
      graph_, TowerOptions{.name = "tower1", .index = 1, .total = 2, .variable_prefix = "tower1/"});
  FullyConnected("fc", kInput, {.units = 2, .kernel_init = init::ones()});
  EXPECT_EQ(regularize_cost("^fc/W", l2_regularizer(2)).item<float>(), 6);
}

TEST_F(LayersTest, LayersCollectTheCostOfTheirKernels) {
  train();
  ArgScope scope(FullyConnectedOptions{.kernel_regularizer = l2_regularizer(0.5)});
  FullyConnected("fc0", kInput, {.units = 2});
  FullyConnected("fc1", kInput, {.units = 2});
  Conv2D("conv", at::ones({1, 1, 4, 4}),
         {.filters = 1, .kernel_size = 3, .kernel_regularizer = l1_regularizer(1)});
  const auto& items = tower_->call().collection(Collection::kRegularizationLosses);
  ASSERT_EQ(items.size(), 3U);
  EXPECT_EQ(items[1].first, "fc1/W/Regularizer");
  const double expected = 0.25 * (variable("fc0/W").square().sum().item<double>() +
                                  variable("fc1/W").square().sum().item<double>()) +
                          variable("conv/W").abs().sum().item<double>();
  EXPECT_NEAR(regularize_cost_from_collection().item<double>(), expected, 1e-5);
  predict();
  FullyConnected("fc0", kInput, {.units = 2});
  EXPECT_EQ(regularize_cost_from_collection().item<float>(), 0);
}

TEST_F(LayersTest, LayersCollectTheCostOfBiasesAndOutputs) {
  train();
  const ArgScope scope(FullyConnectedOptions{.activation = at::relu,
                                             .bias_init = init::constant(3),
                                             .bias_regularizer = l1_regularizer(1),
                                             .activity_regularizer = l1_regularizer(10)});
  const auto layer = [](const at::Tensor& x) {
    const VariableScope shared("siamese", Reuse::kAuto);
    return FullyConnected("fc", x, {.units = 2, .kernel_init = init::ones()});
  };
  layer(kInput);                 // rows of 6, 6
  layer(at::full({1, 3}, -9.));  // 0, 0 behind the activation
  const auto& items = tower_->call().collection(Collection::kRegularizationLosses);
  ASSERT_EQ(items.size(), 3U);  // the bias counts once, each output by itself
  EXPECT_EQ(items[0].first, "siamese/fc/b/Regularizer");
  EXPECT_EQ(items[1].first, "siamese/fc/ActivityRegularizer");
  EXPECT_EQ(regularize_cost_from_collection().item<float>(), 6 + 10 * 24);
}

TEST_F(LayersTest, EveryLayerWithWeightsRegularizesItsBiasAndOutput) {
  train();
  const Regularizer one = [](const at::Tensor&) { return at::ones({}); };
  const at::Tensor image = at::ones({1, 2, 4, 4});
  Conv1D("a", image[0],
         {.filters = 2, .kernel_size = 1, .bias_regularizer = one, .activity_regularizer = one});
  Conv2D("b", image,
         {.filters = 2, .kernel_size = 1, .bias_regularizer = one, .activity_regularizer = one});
  DepthwiseConv2D("c", image,
                  {.kernel_size = 1, .bias_regularizer = one, .activity_regularizer = one});
  Conv2DTranspose(
      "d", image,
      {.filters = 2, .kernel_size = 1, .bias_regularizer = one, .activity_regularizer = one});
  Linear("e", kInput, {.units = 2, .bias_regularizer = one, .activity_regularizer = one});
  EXPECT_EQ(regularize_cost_from_collection().item<float>(), 10);
  predict();
  Conv2D("b", image,
         {.filters = 2, .kernel_size = 1, .bias_regularizer = one, .activity_regularizer = one});
  EXPECT_EQ(regularize_cost_from_collection().item<float>(), 0);
}

TEST_F(LayersTest, ASharedKernelIsRegularizedOnce) {
  train();
  const FullyConnectedOptions shared = {.units = 3, .kernel_regularizer = l2_regularizer(0.2)};
  {
    VariableScope scope("siamese", Reuse::kAuto);
    FullyConnected("fc", kInput, shared);
    FullyConnected("fc", kInput * 2, shared);
  }
  FullyConnected("fc", kInput, shared);  // of another scope: another kernel
  EXPECT_EQ(tower_->call().collection(Collection::kRegularizationLosses).size(), 2U);
  EXPECT_NEAR(regularize_cost_from_collection().item<double>(),
              0.1 * (variable("siamese/fc/W").square().sum().item<double>() +
                     variable("fc/W").square().sum().item<double>()),
              1e-5);
}

TEST_F(LayersTest, ASharedKernelIsRegularizedThoughItsFirstCallIsFrozen) {
  const FullyConnectedOptions shared = {.units = 3, .kernel_regularizer = l2_regularizer(0.2)};
  const auto frozen = [&] {
    const auto scope = freeze_variables();
    FullyConnected("fc", kInput, shared);
  };
  const auto without_gradients = [&] {
    const at::NoGradGuard no_grad;
    FullyConnected("fc", kInput, shared);
  };
  const auto trained = [&] { FullyConnected("fc", kInput, shared); };
  using Calls = std::vector<std::function<void()>>;
  for (const Calls& calls : {Calls{frozen, trained}, Calls{without_gradients, trained},
                             Calls{trained, frozen}, Calls{frozen, trained, trained}}) {
    train();
    const VariableScope scope("siamese", Reuse::kAuto);
    for (const auto& call : calls) call();
    const at::Tensor cost = regularize_cost_from_collection();
    const at::Tensor w = variable("siamese/fc/W");
    EXPECT_NEAR(cost.item<double>(), 0.1 * w.square().sum().item<double>(), 1e-5);
    ASSERT_TRUE(cost.requires_grad());
    EXPECT_TRUE(at::allclose(torch::autograd::grad({cost}, {w})[0], w * 0.2));
  }
}

TEST_F(LayersTest, FrozenVariablesGetNoGradient) {
  train();
  at::Tensor y;
  {
    const auto frozen = freeze_variables();
    y = FullyConnected("frozen", kInput, {.units = 4});
  }
  y = FullyConnected("trained", y, {.units = 1});
  y.sum().backward();
  EXPECT_FALSE(variable("frozen/W").grad().defined());
  EXPECT_TRUE(variable("trained/W").grad().defined());
  EXPECT_TRUE(graph_.variables().at("frozen/W").is_trainable());
}

TEST_F(LayersTest, VariablesFrozenAsModelVariablesAreNotTrained) {
  train();
  const auto frozen = freeze_variables({.as_model_variables = true});
  BatchNorm("bn", kInput);
  EXPECT_EQ(graph_.variables().at("bn/gamma").role, VariableRole::kModel);
  EXPECT_TRUE(graph_.variables().trainable().empty());
}

// The numbers of torch::nn::BatchNorm1d in eval().
TEST_F(LayersTest, AFrozenBatchNormUsesItsStatisticsAndKeepsThem) {
  const at::Tensor x = at::randn({16, 3}) * 2 + 5;
  train();
  BatchNorm("bn", x);
  const at::Tensor mean = variable("bn/mean/EMA").clone();
  const at::Tensor variance = variable("bn/variance/EMA").clone();
  const at::Tensor expected = (x - mean) / (variance + 1e-5).sqrt();
  for (const FreezeOptions& options :
       {FreezeOptions{}, FreezeOptions{.stop_gradient = false, .as_model_variables = true}}) {
    for (const BatchNormOptions& affine : {BatchNormOptions{}, BatchNormOptions{.scale = false}}) {
      train();
      const auto frozen = freeze_variables(options);
      EXPECT_TRUE(at::allclose(BatchNorm("bn", x, affine), expected, 1e-4, 1e-5));
    }
  }
  train();
  {
    const auto frozen = freeze_variables();
    const at::Tensor by_batch = BatchNorm("bn", x, {.training = true});
    EXPECT_LT(by_batch.mean().abs().item<double>(), 1e-5) << "what the call says wins";
  }
  EXPECT_TRUE(at::equal(variable("bn/mean/EMA"), mean));
  EXPECT_TRUE(at::equal(variable("bn/variance/EMA"), variance));
}

TEST_F(LayersTest, ABatchNormIsFrozenInTheCallsThatAreFrozen) {
  const at::Tensor x = at::ones({4, 3}) * 5 + at::randn({4, 3});
  train();
  VariableScope scope("shared", Reuse::kAuto);
  BatchNorm("bn", x);
  const at::Tensor after_one = variable("shared/bn/mean/EMA").clone();
  {
    const auto frozen = freeze_variables();
    const auto mapped =
        remap_variables([](const std::string&, const at::Tensor& value) { return value; });
    BatchNorm("bn", x * 10);
    EXPECT_TRUE(at::equal(variable("shared/bn/mean/EMA"), after_one));
  }
  {
    const auto trained = freeze_variables({.stop_gradient = false});
    BatchNorm("bn", x);  // nothing is frozen
  }
  EXPECT_FALSE(at::equal(variable("shared/bn/mean/EMA"), after_one));
}

TEST_F(LayersTest, WeightsFrozenFromTheBeginningBeginAsOthersDo) {
  train();
  const auto frozen = freeze_variables({.as_model_variables = true});
  EXPECT_GT(get_variable("w", {4, 4}).abs().sum().item<float>(), 0);
  EXPECT_EQ(graph_.variables().at("w").role, VariableRole::kModel);
}

TEST_F(LayersTest, RemappedVariablesPassTheirGradientOn) {
  train();
  std::vector<std::string> names;
  at::Tensor y;
  {
    const auto twice = remap_variables([&](const std::string& name, const at::Tensor& value) {
      names.push_back(name);
      return name.ends_with("/W") ? value * 2 : value;
    });
    const auto plus =
        remap_variables([](const std::string&, const at::Tensor& value) { return value + 1; });
    y = FullyConnected("fc", kInput, {.units = 1, .kernel_init = init::ones()});
    BatchNorm("bn", kInput);
  }
  EXPECT_THAT(names, testing::ElementsAre("fc/W", "fc/b", "bn/beta", "bn/gamma"));
  EXPECT_EQ(y[0][0].item<float>(), 3 * (1 * 2 + 1) + 1);
  y.sum().backward();
  EXPECT_TRUE(at::equal(variable("fc/W").grad(), at::full({1, 3}, 4.F)));
  predict();
  EXPECT_EQ(FullyConnected("fc", kInput, {.units = 1})[0][0].item<float>(), 3);
}

TEST_F(LayersTest, ARemappedVariableKeepsItsShape) {
  train();
  const auto sum =
      remap_variables([](const std::string&, const at::Tensor& value) { return value.sum(); });
  EXPECT_ERROR(FullyConnected("fc", kInput, {.units = 1}), "changed the shape of 'fc/W'");
}

}  // namespace
}  // namespace tensorpack::test
