// SPDX-License-Identifier: Apache-2.0
// Layers against libtorch's own functions: values, variable names and shapes, errors.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>

#include "tensorpack/graph/graph.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/linear.h"
#include "tensorpack/models/pooling.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tests/models/fixture.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// A session may make do with less.
TEST_F(LayersTest, TooLittleMemoryKeepsItsType) {
  train();
  const auto without_memory = [](const at::Tensor&) -> at::Tensor {
    TORCH_CHECK_WITH(OutOfMemoryError, false, "out of memory");
  };
  EXPECT_THROW(FullyConnected("fc", at::ones({2, 3}), {.units = 4, .activation = without_memory}),
               c10::OutOfMemoryError);
}

// libtorch takes one channel for contiguous, where convolution and pooling are slow on the CPU.
TEST_F(LayersTest, Conv2DOfOneChannelIsChannelsLastToo) {
  train();
  const at::Tensor x = at::randn({2, 1, 7, 6}).set_requires_grad(true);
  const at::Tensor y = Conv2D("conv", x, {.filters = 4, .kernel_size = 3});
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  const at::Tensor expected = at::conv2d(x, variable("conv/W"), variable("conv/b"), 1, 1);
  EXPECT_TRUE(at::allclose(y, expected, 1e-4, 1e-5));
  const auto gradient = [&](const at::Tensor& output) {
    return torch::autograd::grad({output.square().sum()}, {x})[0];
  };
  EXPECT_TRUE(at::allclose(gradient(y), gradient(expected), 1e-3, 1e-4));
}

TEST(ConvolutionTest, AModelOfOneChannelThatNeedsContiguousTensorsGetsThem) {
  Graph graph;
  int calls = 0;
  graph.define({.name = "step",
                .inputs = {{"x", {2, 1, 5, 5}}},
                .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
                  TowerContext tower(graph);
                  ++calls;
                  const at::Tensor y = Conv2D("conv", in[0], {.filters = 4, .kernel_size = 3});
                  return {{"y", y.view({2, -1})}};
                }});
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(graph.options().channels_last);
}

TEST_F(LayersTest, Conv2DIsAConvolutionWithNamedVariables) {
  train();
  const at::Tensor x = at::randn({2, 3, 9, 7});
  const at::Tensor y = Conv2D("conv", x,
                              {.filters = 4,
                               .kernel_size = Size2D(3, 5),
                               .strides = 2,
                               .padding = Padding::of({1, 2}),
                               .activation = torch::relu});
  EXPECT_THAT(variable("conv/W").sizes().vec(), ElementsAre(4, 3, 3, 5));
  EXPECT_THAT(variable("conv/b").sizes().vec(), ElementsAre(4));
  EXPECT_TRUE(at::equal(y, at::relu(at::conv2d(x, variable("conv/W"), variable("conv/b"), {2, 2},
                                               at::IntArrayRef{1, 2}))));
  EXPECT_TRUE(tower_->call().tensor("conv/output").is_same(y));
}

TEST_F(LayersTest, SamePaddingRoundsTheOutputSizeUp) {
  train();
  int index = 0;
  for (int64_t size : {5, 6, 7, 8}) {
    for (int64_t stride : {1, 2, 3}) {
      for (int64_t kernel : {1, 2, 3, 4, 5}) {
        const at::Tensor y = Conv2D("conv" + std::to_string(index++), at::randn({1, 1, size, size}),
                                    {.filters = 1, .kernel_size = kernel, .strides = stride});
        EXPECT_EQ(y.size(2), (size + stride - 1) / stride)
            << size << ' ' << stride << ' ' << kernel;
      }
    }
  }
}

TEST_F(LayersTest, OddSamePaddingGoesToTheBottomAndTheRight) {
  train();
  const at::Tensor x = at::arange(16).to(at::kFloat).reshape({1, 1, 4, 4});
  const at::Tensor y = Conv2D(
      "conv", x, {.filters = 1, .kernel_size = 3, .strides = 2, .kernel_init = init::ones()});
  EXPECT_TRUE(at::equal(y, at::conv2d(at::constant_pad_nd(x, {0, 1, 0, 1}), variable("conv/W"),
                                      variable("conv/b"), 2)));
}

TEST_F(LayersTest, GroupsShareNoChannels) {
  train();
  const at::Tensor x = at::randn({1, 4, 5, 5});
  const at::Tensor y = Conv2D("conv", x, {.filters = 6, .kernel_size = 3, .groups = 2});
  EXPECT_THAT(variable("conv/W").sizes().vec(), ElementsAre(6, 2, 3, 3));
  EXPECT_TRUE(at::equal(y, at::conv2d(x, variable("conv/W"), variable("conv/b"), 1, 1, 1, 2)));
}

TEST_F(LayersTest, FullyConnectedFlattensItsInput) {
  train();
  const at::Tensor x = at::randn({2, 3, 4});
  const at::Tensor y = FullyConnected("fc", x, {.units = 5, .use_bias = false});
  EXPECT_THAT(variable("fc/W").sizes().vec(), ElementsAre(5, 12));
  EXPECT_EQ(graph_.variables().find("fc/b"), nullptr);
  EXPECT_TRUE(at::equal(y, at::linear(x.flatten(1), variable("fc/W"))));
}

TEST_F(LayersTest, FullyConnectedSaysWhenItFlattensTokens) {
  train();
  const auto log_of = [&](const at::Tensor& x, const std::string& name) {
    return stdout_of([&] { FullyConnected(name, x, {.units = 5}); });
  };
  EXPECT_THAT(log_of(at::ones({2, 3, 4}), "tokens"),
              AllOf(HasSubstr("[FullyConnected 'tokens'] flattens its input of [N, 3, 4] to "
                              "[N, 12]."),
                    HasSubstr("use Linear")));
  train();
  EXPECT_EQ(log_of(at::ones({6, 3, 4}), "tokens"), "") << "once";
  EXPECT_EQ(log_of(at::ones({2, 3, 4, 4}), "images"), "");
  EXPECT_EQ(log_of(at::ones({2, 12}), "features"), "");
}

// As torch::nn::Linear computes it.
TEST_F(LayersTest, LinearIsOverTheLastDimension) {
  train();
  int index = 0;
  for (const auto& shape :
       std::vector<std::vector<int64_t>>{{4}, {2, 4}, {2, 3, 4}, {2, 3, 5, 4}}) {
    const std::string name = "linear" + std::to_string(index++);
    const at::Tensor x = at::randn(shape);
    const at::Tensor y = Linear(name, x, {.units = 5, .bias_init = init::normal(1)});
    EXPECT_THAT(shape_of(name + "/W"), ElementsAre(5, 4));
    EXPECT_TRUE(at::equal(y, at::linear(x, variable(name + "/W"), variable(name + "/b"))));
    EXPECT_TRUE(tower_->call().tensor(name + "/output").is_same(y));
  }
}

TEST_F(LayersTest, LinearTakesTheOptionsOfItsScope) {
  train();
  ArgScope scope(LinearOptions{.activation = torch::relu,
                               .use_bias = false,
                               .kernel_init = init::constant(-1),
                               .kernel_regularizer = l1_regularizer(1)});
  EXPECT_EQ(Linear("fc", at::ones({1, 2, 4}), {.units = 3}).sum().item<float>(), 0);
  EXPECT_FALSE(has_variable("fc/b"));
  EXPECT_EQ(regularize_cost_from_collection().item<float>(), 12);
  EXPECT_ERROR(Linear("none", at::ones({2, 4}), {}), "Set .units to 1 or more.");
  EXPECT_ERROR(Linear("scalar", at::ones({}), {.units = 1}), "has no dimension of features");
}

TEST_F(LayersTest, PoolingIsThatOfLibtorch) {
  train();
  const at::Tensor x = at::randn({2, 3, 8, 8});
  EXPECT_TRUE(at::equal(MaxPooling("max", x, 3, {.strides = 2, .padding = Padding::of(1)}),
                        at::max_pool2d(x, 3, 2, 1)));
  EXPECT_TRUE(at::equal(AvgPooling("avg", x, 2), at::avg_pool2d(x, 2)));
  EXPECT_TRUE(at::equal(GlobalAvgPooling("global", x), x.mean({2, 3})));
}

TEST_F(LayersTest, BatchNormTrainsOnTheBatchAndPredictsOnMovingAverages) {
  train();
  const at::Tensor x = at::randn({16, 3, 4, 4}) * 2 + 1;
  const at::Tensor y = BatchNorm("bn", x, {.momentum = 0.8});
  EXPECT_LT(y.mean().abs().item<double>(), 1e-5);
  EXPECT_TRUE(at::allclose(variable("bn/mean/EMA"), x.mean({0, 2, 3}) * 0.2));
  EXPECT_TRUE(at::allclose(variable("bn/variance/EMA"), x.var({0, 2, 3}) * 0.2 + 0.8));
  EXPECT_EQ(graph_.variables().at("bn/mean/EMA").role, VariableRole::kModel);
  EXPECT_EQ(graph_.variables().at("bn/gamma").role, VariableRole::kTrainable);

  predict();
  const at::Tensor before = variable("bn/mean/EMA").clone();
  const at::Tensor z = BatchNorm("bn", x, {.momentum = 0.8});
  EXPECT_TRUE(at::equal(variable("bn/mean/EMA"), before));
  const at::Tensor mean = before.reshape({1, 3, 1, 1});
  const at::Tensor variance = variable("bn/variance/EMA").reshape({1, 3, 1, 1});
  EXPECT_TRUE(at::allclose(z, (x - mean) / (variance + 1e-5).sqrt(), 1e-4, 1e-5));
}

TEST_F(LayersTest, OnlyTheMainTowerKeepsStatistics) {
  train();
  BatchNorm("bn", at::randn({8, 2}));
  const at::Tensor before = variable("bn/mean/EMA").clone();
  tower_.reset();
  tower_.emplace(graph_,
                 TowerOptions{.name = "tower1", .index = 1, .total = 2, .shares_variables = true});
  BatchNorm("bn", at::randn({8, 2}));
  EXPECT_TRUE(at::equal(variable("bn/mean/EMA"), before));
}

TEST_F(LayersTest, DropoutActsInTrainingAlone) {
  train();
  const at::Tensor x = at::ones({1000});
  const at::Tensor y = Dropout("drop", x, {.rate = 0.25});
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), 0.25, 0.06);
  EXPECT_NEAR(y.max().item<double>(), 1 / 0.75, 1e-6);
  predict();
  EXPECT_TRUE(at::equal(Dropout("drop", x, {.rate = 0.25}), x));
}

TEST_F(LayersTest, ArgScopesMergeAndTheCallWins) {
  train();
  const at::Tensor x = at::randn({1, 1, 6, 6});
  ArgScope outer(Conv2DOptions{.kernel_size = 3, .activation = torch::relu, .use_bias = false});
  {
    ArgScope inner(Conv2DOptions{.kernel_size = 5});
    Conv2D("inner", x, {.filters = 2});
    Conv2D("call", x, {.filters = 2, .kernel_size = 1});
  }
  const at::Tensor y = Conv2D("outer", x, {.filters = 2});
  EXPECT_EQ(variable("inner/W").size(2), 5);
  EXPECT_EQ(variable("call/W").size(2), 1);
  EXPECT_EQ(variable("outer/W").size(2), 3);
  EXPECT_EQ(graph_.variables().find("inner/b"), nullptr);
  EXPECT_GE(y.min().item<double>(), 0);
}

TEST_F(LayersTest, ErrorsNameTheLayerAndItsInput) {
  train();
  VariableScope scope("gen");
  const at::Tensor image = at::randn({2, 3, 8, 8});
  EXPECT_THAT([&] { Conv2D("c0", image, {.kernel_size = 3}); },
              ThrowsMessage<Error>(AllOf(HasSubstr("[Conv2D 'gen/c0']"), HasSubstr(".filters"))));
  EXPECT_THAT([&] { Conv2D("c1", image[0], {.filters = 1, .kernel_size = 3}); },
              ThrowsMessage<Error>(HasSubstr("must be [N, C, H, W], got [3, 8, 8]")));
  EXPECT_THAT([&] { Conv2D("c2", image, {.filters = 4, .kernel_size = 3, .groups = 2}); },
              ThrowsMessage<Error>(HasSubstr("2 groups do not divide 3 input channels")));
  EXPECT_THAT(
      [&] { Conv2D("c3", image, {.filters = 1, .kernel_size = 11, .padding = Padding::valid()}); },
      ThrowsMessage<Error>(HasSubstr("[Conv2D 'gen/c3', input [2, 3, 8, 8]]")));
  EXPECT_THAT([&] { FullyConnected("fc", at::randn({3}), {.units = 2}); },
              ThrowsMessage<Error>(HasSubstr("needs a batch dimension")));
  EXPECT_THAT(
      [&] {
        BatchNorm("bn", at::randn({2, 3, 4}));
      },
      ThrowsMessage<Error>(HasSubstr("got [2, 3, 4]")));
  EXPECT_THAT([&] { Dropout("drop", image, {.rate = 1}); },
              ThrowsMessage<Error>(HasSubstr("the rate is 1")));
}

}  // namespace
}  // namespace tensorpack::test
