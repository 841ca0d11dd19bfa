// SPDX-License-Identifier: Apache-2.0
// Normalisation, upsampling and nonlinear layers, helpers, and the errors of all of them.
#include <ATen/ATen.h>

#include "tensorpack/models/attention.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv1d.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/conv2d_transpose.h"
#include "tensorpack/models/embedding.h"
#include "tensorpack/models/linear_wrap.h"
#include "tensorpack/models/nonlinear.h"
#include "tensorpack/models/norm.h"
#include "tensorpack/models/recurrent.h"
#include "tensorpack/models/symbolic.h"
#include "tensorpack/models/upsample.h"
#include "tensorpack/session/program_executor.h"
#include "tests/models/fixture.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(LayersTest, LayerNormLooksAtOneExample) {
  train();
  const at::Tensor tokens = at::randn({2, 5, 6});
  const at::Tensor of_tokens = LayerNorm("tokens", tokens);
  EXPECT_TRUE(at::equal(of_tokens, at::layer_norm(tokens, {6}, variable("tokens/gamma"),
                                                  variable("tokens/beta"), 1e-5)));
  const at::Tensor images = at::randn({2, 3, 4, 5}) * 3 + 1;
  const at::Tensor y = LayerNorm("images", images);
  EXPECT_THAT(shape_of("images/gamma"), ElementsAre(3));
  EXPECT_TRUE(at::allclose(y, at::layer_norm(images, {3, 4, 5}), 1e-4, 1e-5));
  LayerNorm("plain", tokens, {.center = false, .scale = false});
  EXPECT_FALSE(has_variable("plain/beta") || has_variable("plain/gamma"));
}

TEST_F(LayersTest, InstanceAndGroupNormAreThoseOfLibtorch) {
  train();
  const at::Tensor x = at::randn({2, 6, 4, 5}) * 3 + 1;
  const at::Tensor instance = InstanceNorm("instance", x);
  EXPECT_LT(instance.mean({2, 3}).abs().max().item<double>(), 1e-5);
  EXPECT_THAT(shape_of("instance/beta"), ElementsAre(6));
  const at::Tensor group = GroupNorm("group", x, {.groups = 3});
  EXPECT_TRUE(
      at::equal(group, at::group_norm(x, 3, variable("group/gamma"), variable("group/beta"))));
  EXPECT_TRUE(at::allclose(GroupNorm("one_each", x, {.groups = 6}), instance, 1e-4, 1e-5));
}

TEST_F(LayersTest, FixedUnPoolingIsAKroneckerProduct) {
  train();
  const at::Tensor x = at::randn({2, 3, 4, 5});
  const at::Tensor matrix = at::randn({2, 3});
  const at::Tensor y = FixedUnPooling("mat", x, {2, 3}, {.unpool_mat = matrix});
  EXPECT_TRUE(at::allclose(y[1][2], at::kron(x[1][2].contiguous(), matrix)));
  at::Tensor corner = at::zeros({2, 3});
  corner[0][0] = 1;
  EXPECT_TRUE(at::equal(FixedUnPooling("corner", x, {2, 3}),
                        FixedUnPooling("ones", x, {2, 3}, {.unpool_mat = corner})));
}

TEST_F(LayersTest, BilinearUpSampleKeepsAPlane) {
  train();
  const at::Tensor x = at::arange(4).to(at::kFloat).reshape({1, 1, 1, 4}).expand({1, 1, 3, 4});
  const at::Tensor y = BilinearUpSample("up", x, {1, 2});
  EXPECT_THAT(y.sizes().vec(), ElementsAre(1, 1, 3, 8));
  EXPECT_TRUE(
      at::allclose(y[0][0][0], at::tensor({0., .25, .75, 1.25, 1.75, 2.25, 2.75, 3.}, at::kFloat)));
}

TEST_F(LayersTest, PReLUHasOneSlope) {
  train();
  const at::Tensor x = at::randn({3, 4});
  const at::Tensor y = PReLU("prelu", x, {.init = 0.2});
  EXPECT_EQ(variable("prelu/alpha").dim(), 0);
  EXPECT_TRUE(at::allclose(y, at::leaky_relu(x, 0.2)));
}

TEST_F(LayersTest, MaxoutTakesTheLargestOfNeighbouringChannels) {
  train();
  const at::Tensor x = at::randn({2, 6, 3, 3});
  const at::Tensor y = Maxout("max", x, 2);
  EXPECT_THAT(y.sizes().vec(), ElementsAre(2, 3, 3, 3));
  EXPECT_TRUE(at::equal(y.select(1, 1), at::maximum(x.select(1, 2), x.select(1, 3))));
}

TEST_F(LayersTest, ConcatWithPutsItsInputFirst) {
  train();
  const at::Tensor a = at::randn({2, 3}), b = at::randn({2, 1}), c = at::randn({2, 2});
  EXPECT_TRUE(at::equal(ConcatWith("cat", a, {b, c}, 1), at::cat({a, b, c}, 1)));
}

TEST_F(LayersTest, SkippedStatisticsStay) {
  train();
  const at::Tensor x = at::randn({8, 3});
  const at::Tensor y = BatchNorm("bn", x, {.ema_update = EmaUpdate::kSkip});
  EXPECT_LT(y.mean().abs().item<double>(), 1e-5);
  EXPECT_TRUE(at::equal(variable("bn/mean/EMA"), at::zeros({3})));
}

TEST_F(LayersTest, FrozenBatchNormUsesItsMovingStatisticsAndWarnsOnce) {
  train();
  const at::Tensor x = at::randn({8, 3});
  at::Tensor y;
  const std::string log = stdout_of([&] { y = BatchNorm("frozen", x, {.training = false}); });
  EXPECT_THAT(log, HasSubstr("[BatchNorm 'frozen'] uses the moving statistics in training"));
  EXPECT_TRUE(at::allclose(y, x / std::sqrt(1 + 1e-5)));
  EXPECT_TRUE(at::equal(variable("frozen/mean/EMA"), at::zeros({3})));
  train();
  EXPECT_EQ(stdout_of([&] { BatchNorm("frozen", x, {.training = false}); }), "");
}

TEST_F(LayersTest, LinearWrapIsTheSameAsTheCalls) {
  train();
  const at::Tensor x = at::randn({2, 1, 8, 8});
  const at::Tensor y = LinearWrap(x)
                           .Conv2D("conv", {.filters = 2, .kernel_size = 3})
                           .apply(torch::relu)
                           .MaxPooling("pool", 2)
                           .PReLU("prelu")
                           .FullyConnected("fc", {.units = 3});
  predict();
  at::Tensor z = at::relu(Conv2D("conv", x, {.filters = 2, .kernel_size = 3}));
  z = FullyConnected("fc", PReLU("prelu", MaxPooling("pool", z, 2)), {.units = 3});
  EXPECT_TRUE(at::equal(y, z));
}

TEST_F(LayersTest, LinearWrapHasEveryLayerOfOneTensor) {
  train();
  const at::Tensor image = at::randn({2, 2, 8, 8});
  const LinearWrap y = LinearWrap(image)
                           .DepthwiseConv2D("d", {.kernel_size = 3})
                           .Conv2DTranspose("t", {.filters = 4, .kernel_size = 3, .strides = 2})
                           .BatchNorm("bn")
                           .BatchRenorm("br", {.rmax = 3, .dmax = 5})
                           .BNReLU("bnrelu")
                           .InstanceNorm("in")
                           .GroupNorm("gn", {.groups = 2})
                           .LayerNorm("ln")
                           .MaxPooling("max", 2, {.padding = Padding::same()})
                           .AvgPooling("avg", 2)
                           .FixedUnPooling("un", 2)
                           .BilinearUpSample("up", 2)
                           .PReLU("prelu")
                           .Maxout("maxout", 2)
                           .ConcatWith("cat", {at::zeros({2, 1, 16, 16})}, 1)
                           .BNReLU("bnrelu2");
  EXPECT_EQ(y.tensor().sizes(), (at::IntArrayRef{2, 3, 16, 16}));
  const VariableScope scope("unnamed");
  EXPECT_EQ(y.BNReLU().tensor().sizes(), y.tensor().sizes());
  EXPECT_TRUE(has_variable("unnamed/bn/gamma"));
  EXPECT_EQ(y.GlobalAvgPooling("pool").Dropout("drop").tensor().sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_EQ(LinearWrap(at::zeros({2, 5}, at::kLong))
                .Embedding("e", {.vocabulary = 3, .features = 4})
                .MultiHeadAttention("a", {.heads = 2})
                .Linear("l", {.units = 6})
                .Conv1D("c", {.filters = 3, .kernel_size = 3})
                .tensor()
                .sizes(),
            (at::IntArrayRef{2, 3, 6}));
}

TEST_F(LayersTest, ErrorsOfTheseLayersNameThePlaceToo) {
  train();
  VariableScope scope("gen");
  const at::Tensor image = at::randn({2, 3, 8, 8});
  EXPECT_ERROR(Conv2DTranspose("t0", image, {.kernel_size = 3}), "[Conv2DTranspose 'gen/t0']");
  EXPECT_ERROR(Conv2DTranspose("t1", image[0], {.filters = 1, .kernel_size = 3}),
               "must be [N, C, H, W], got [3, 8, 8]");
  EXPECT_ERROR(
      Conv2DTranspose("t2", image, {.filters = 1, .kernel_size = 1, .padding = Padding::of(9)}),
      "[Conv2DTranspose 'gen/t2'] padding 9x9 leaves nothing of an input of 8x8: the output would "
      "be -10x-10. Pad less.");
  EXPECT_ERROR(DepthwiseConv2D("d", image, {.kernel_size = 3, .channel_multiplier = 0}),
               "multiplier is 0");
  EXPECT_ERROR(DepthwiseConv2D("d1", image, {.kernel_size = 0}), "[DepthwiseConv2D 'gen/d1']");
  EXPECT_ERROR(Conv1D("c", image, {.filters = 1, .kernel_size = 3}), "must be [N, C, L]");
  EXPECT_ERROR(Conv1D("c1", image[0], {.filters = 1, .kernel_size = -1}), "kernel size -1");
  EXPECT_ERROR(GroupNorm("g", image), "32 groups do not divide 3 channels");
  EXPECT_ERROR(InstanceNorm("i", image[0]), "[InstanceNorm 'gen/i']");
  EXPECT_ERROR(LayerNorm("l", at::randn({3})), "[LayerNorm 'gen/l']");
  EXPECT_ERROR(FixedUnPooling("f", image, 0), "enlarges by 0x0");
  EXPECT_ERROR(FixedUnPooling("f1", image, 2, {.unpool_mat = at::ones({3, 3})}), "the matrix is");
  EXPECT_ERROR(BilinearUpSample("b", image[0], 2), "[BilinearUpSample 'gen/b']");
  EXPECT_ERROR(Maxout("m", image, 2), "2 units do not divide 3 channels");
  EXPECT_ERROR(ConcatWith("cc", image, {image[0]}, 1), "[ConcatWith 'gen/cc', input [2, 3, 8, 8]]");
  EXPECT_ERROR(Embedding("e", image, {.vocabulary = 2, .features = 2}), "the ids are Float");
  EXPECT_ERROR(LSTM("r", image, {.units = 2}), "[LSTM 'gen/r']");
  EXPECT_ERROR(GRU("r1", image[0], {.units = 0}), "units 0");
  EXPECT_ERROR(MultiHeadAttention("a", image[0], {.heads = 3}), "3 heads do not divide 8");
  EXPECT_ERROR(MaxPooling("p", image, 0), "pool size 0x0");
}

TEST(SymbolicTest, PredictionIncorrectIsOneForEachMiss) {
  const at::Tensor logits = at::tensor({1., 3., 2., 5., 0., 4.}, at::kFloat).view({2, 3});
  const at::Tensor label = at::tensor({2, 0}, at::kLong);
  EXPECT_TRUE(at::equal(prediction_incorrect(logits, label), at::tensor({1., 0.}, at::kFloat)));
  EXPECT_TRUE(at::equal(prediction_incorrect(logits, label, 2), at::zeros({2})));
  EXPECT_EQ(accuracy(logits, label).item<float>(), 0.5F);
  EXPECT_ERROR(prediction_incorrect(logits, label, 4), "topk is 4 for 3 classes");
  EXPECT_ERROR(prediction_incorrect(logits, label.view({1, 2})), "must be [N, classes] and [N]");
}

TEST(SymbolicTest, RmsAndHuberLossAreWhatTheySay) {
  EXPECT_FLOAT_EQ(rms(at::tensor({3., 4.}, at::kFloat)).item<float>(), std::sqrt(12.5F));
  const at::Tensor x = at::randn({50}) * 3;
  EXPECT_TRUE(
      at::allclose(huber_loss(x, 2), at::huber_loss(x, at::zeros_like(x), at::Reduction::None, 2)));
}

TEST_F(LayersTest, PrintStatReturnsItsTensorAndLogsTheFirstValues) {
  train();
  const at::Tensor x = named("x", at::arange(24, at::kLong).view({4, 6}));
  const std::string log = stdout_of([&] { EXPECT_TRUE(print_stat(x).is_same(x)); });
  EXPECT_THAT(log, HasSubstr("x: shape [4, 6], mean 11.5, rms 13.42, values [0, 1, 2, 3, "));
  EXPECT_THAT(log, HasSubstr("18, 19, ...]."));
  EXPECT_THAT(stdout_of([&] { print_stat(at::ones({2}), "Ones"); }),
              HasSubstr("Ones: shape [2], mean 1, rms 1, values [1, 1]."));
  EXPECT_ERROR(print_stat({}), "the tensor is undefined");
}

TEST(PrintStatTest, ARecordedProgramLogsTheValueOfEveryRun) {
  Graph graph;
  const Op op = graph.define({
      .name = "op",
      .inputs = {{"x", {-1}}},
      .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        print_stat(in[0] * 2, "Twice");
        return {};
      },
  });
  ProgramExecutor executor(graph, {});
  executor.run(op, {at::ones({2})}, {});
  const std::string log = stdout_of([&] { executor.run(op, {at::full({2}, 3.)}, {}); });
  EXPECT_THAT(log, HasSubstr("Twice: shape [2], mean 6, rms 6, values [6, 6]."));
  EXPECT_EQ(executor.recordings(), 1U);
}

TEST_F(LayersTest, LogShapesLogsEveryLayerOnce) {
  static int run = 0;  // a repeated test needs new texts
  const std::string name = "shapes" + std::to_string(++run);
  const auto model = [&](const at::Tensor& input) {
    LogShapes log_shapes;
    VariableScope scope(name);
    BNReLU("bnrelu", Conv2D("conv", input, {.filters = 4, .kernel_size = 3}));
  };
  train();
  const std::string log = stdout_of([&] { model(at::randn({2, 3, 8, 8})); });
  EXPECT_THAT(log, HasSubstr("Conv2D '" + name + "/conv': [-1, 3, 8, 8] -> [-1, 4, 8, 8]"));
  EXPECT_THAT(log, HasSubstr("BatchNorm '" + name + "/bnrelu/bn': [-1, 4, 8, 8] -> [-1, 4, 8, 8]"));
  train();
  EXPECT_EQ(stdout_of([&] { model(at::randn({5, 3, 8, 8})); }), "");
  EXPECT_EQ(stdout_of([&] { FullyConnected("quiet", at::randn({2, 3}), {.units = 4}); }), "");
}

}  // namespace
}  // namespace tensorpack::test
