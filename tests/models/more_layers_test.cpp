// SPDX-License-Identifier: Apache-2.0
// Layers beyond the first few, against libtorch's own functions: values, variables, errors.
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
#include "tests/models/fixture.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST_F(LayersTest, Conv2DTransposeWithExplicitPaddingIsThatOfLibtorch) {
  train();
  const at::Tensor x = at::randn({2, 3, 5, 4});
  const at::Tensor y = Conv2DTranspose(
      "up", x, {.filters = 6, .kernel_size = 4, .strides = 2, .padding = Padding::of(1)});
  EXPECT_THAT(shape_of("up/W"), ElementsAre(3, 6, 4, 4));
  EXPECT_THAT(shape_of("up/b"), ElementsAre(6));
  EXPECT_TRUE(at::equal(y, at::conv_transpose2d(x, variable("up/W"), variable("up/b"), 2, 1)));
}

TEST_F(LayersTest, Conv2DTransposeHasTheSizesOfTheReference) {
  train();
  int index = 0;
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t kernel : {1, 2, 3, 4, 5}) {
      const at::Tensor x = at::randn({1, 2, 5, 4});
      const std::string suffix = std::to_string(index++);
      const at::Tensor same = Conv2DTranspose(
          "same" + suffix, x, {.filters = 1, .kernel_size = kernel, .strides = stride});
      EXPECT_THAT(same.sizes().vec(), ElementsAre(1, 1, 5 * stride, 4 * stride));
      const at::Tensor valid = Conv2DTranspose(
          "valid" + suffix, x,
          {.filters = 1, .kernel_size = kernel, .strides = stride, .padding = Padding::valid()});
      const int64_t more = std::max<int64_t>(kernel - stride, 0);
      EXPECT_THAT(valid.sizes().vec(), ElementsAre(1, 1, 5 * stride + more, 4 * stride + more));
    }
  }
}

TEST_F(LayersTest, SameConv2DTransposeIsTheGradientOfSameConv2D) {
  train();
  int index = 0;
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t kernel : {1, 2, 3, 4, 5}) {
      const std::string suffix = std::to_string(index++);
      const at::Tensor small = at::randn({1, 2, 4, 4});
      const at::Tensor big = at::randn({1, 3, 4 * stride, 4 * stride}).requires_grad_(true);
      const at::Tensor down =
          Conv2D("down" + suffix, big,
                 {.filters = 2, .kernel_size = kernel, .strides = stride, .use_bias = false});
      const at::Tensor weight = variable("down" + suffix + "/W").detach();
      const at::Tensor up = Conv2DTranspose("up" + suffix, small,
                                            {.filters = 3,
                                             .kernel_size = kernel,
                                             .strides = stride,
                                             .use_bias = false,
                                             .kernel_init = init::from(weight)});
      (down * small).sum().backward();
      EXPECT_TRUE(at::allclose(up, big.grad(), 1e-4, 1e-5)) << stride << ' ' << kernel;
    }
  }
}

TEST_F(LayersTest, DepthwiseConv2DHasFiltersOfItsOwnForEachChannel) {
  train();
  const at::Tensor x = at::randn({2, 3, 6, 6});
  const at::Tensor y = DepthwiseConv2D("dw", x, {.kernel_size = 3, .channel_multiplier = 2});
  EXPECT_THAT(shape_of("dw/W"), ElementsAre(6, 1, 3, 3));
  EXPECT_TRUE(at::equal(y, at::conv2d(x, variable("dw/W"), variable("dw/b"), 1, 1, 1, 3)));
}

TEST_F(LayersTest, Conv1DIsThatOfLibtorch) {
  train();
  const at::Tensor x = at::randn({2, 4, 9});
  const at::Tensor y =
      Conv1D("conv", x, {.filters = 6, .kernel_size = 3, .dilation = 2, .groups = 2});
  EXPECT_THAT(shape_of("conv/W"), ElementsAre(6, 2, 3));
  EXPECT_TRUE(at::equal(
      y, at::conv1d(x, variable("conv/W"), variable("conv/b"), 1, at::IntArrayRef{2}, 2, 2)));
  EXPECT_EQ(Conv1D("even", x, {.filters = 1, .kernel_size = 4, .strides = 2}).size(2), 5);
}

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

TEST_F(LayersTest, EmbeddingLooksUpRows) {
  train();
  const at::Tensor ids = at::tensor({3, 0, 3}, at::kLong);
  const at::Tensor y = Embedding("words", ids, {.vocabulary = 5, .features = 4});
  EXPECT_THAT(shape_of("words/W"), ElementsAre(5, 4));
  EXPECT_TRUE(at::equal(y, variable("words/W").index_select(0, ids)));
}

TEST_F(LayersTest, LstmIsThatOfLibtorch) {
  train();
  const at::Tensor x = at::randn({5, 2, 3});
  const RecurrentOutput out = LSTM("lstm", x, {.units = 4, .layers = 2, .bidirectional = true});
  EXPECT_THAT(shape_of("lstm/weight_ih_l0"), ElementsAre(16, 3));
  EXPECT_THAT(shape_of("lstm/weight_ih_l1_reverse"), ElementsAre(16, 8));
  std::vector<at::Tensor> weights;
  for (const Variable* v : graph_.variables().trainable()) weights.push_back(v->tensor);
  const at::Tensor zeros = at::zeros({4, 2, 4});
  const auto [y, h, c] = at::lstm(x, {zeros, zeros}, weights, true, 2, 0, true, true, false);
  EXPECT_TRUE(at::equal(out.output, y));
  EXPECT_TRUE(at::equal(out.state.hidden, h));
  EXPECT_TRUE(at::equal(out.state.cell, c));
}

TEST_F(LayersTest, RecurrentNetworksGoOnWhereTheyStopped) {
  train();
  const at::Tensor x = at::randn({2, 6, 3});
  const at::Tensor whole = GRU("gru", x, {.units = 4, .batch_first = true}).output;
  EXPECT_THAT(shape_of("gru/weight_hh_l0"), ElementsAre(12, 4));
  predict();
  const RecurrentOutput first = GRU("gru", x.narrow(1, 0, 2), {.units = 4, .batch_first = true});
  predict();
  const RecurrentOutput second =
      GRU("gru", x.narrow(1, 2, 4), {.units = 4, .batch_first = true, .start = first.state});
  EXPECT_TRUE(at::allclose(at::cat({first.output, second.output}, 1), whole, 1e-4, 1e-6));
}

// What torch::nn::MultiheadAttention computes, in its own steps.
at::Tensor plain_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           int64_t heads) {
  std::vector<at::Tensor> parts;
  const int64_t size = q.size(2) / heads;
  for (int64_t h = 0; h < heads; ++h) {
    const auto slice = [&](const at::Tensor& t) { return t.narrow(2, h * size, size); };
    const at::Tensor scores = at::bmm(slice(q), slice(k).transpose(1, 2)) / std::sqrt(double(size));
    parts.push_back(at::bmm(scores.softmax(-1), slice(v)));
  }
  return at::cat(parts, 2);
}

TEST_F(LayersTest, MultiHeadAttentionMixesTheValues) {
  train();
  const at::Tensor q = at::randn({2, 5, 8}), k = at::randn({2, 3, 6}), v = at::randn({2, 3, 4});
  const at::Tensor y = MultiHeadAttention("mha", q, k, v, {.heads = 2});
  EXPECT_THAT(shape_of("mha/k/W"), ElementsAre(8, 6));
  EXPECT_THAT(shape_of("mha/out/b"), ElementsAre(8));
  auto project = [&](const std::string& name, const at::Tensor& x) {
    return at::linear(x, variable("mha/" + name + "/W"), variable("mha/" + name + "/b"));
  };
  const at::Tensor mixed = plain_attention(project("q", q), project("k", k), project("v", v), 2);
  EXPECT_TRUE(at::allclose(y, project("out", mixed), 1e-4, 1e-5));
}

TEST_F(LayersTest, CausalAttentionDoesNotLookAhead) {
  train();
  const at::Tensor x = at::randn({1, 4, 8});
  at::Tensor changed = x.clone();
  changed.narrow(1, 2, 2).fill_(7);
  const at::Tensor y = MultiHeadAttention("mha", x, {.heads = 2, .causal = true});
  predict();
  const at::Tensor z = MultiHeadAttention("mha", changed, {.heads = 2, .causal = true});
  EXPECT_TRUE(at::allclose(y.narrow(1, 0, 2), z.narrow(1, 0, 2)));
  EXPECT_FALSE(at::allclose(y, z));
  predict();
  const at::Tensor visible = at::ones({4, 4}, at::kBool).tril();
  EXPECT_TRUE(at::equal(z, MultiHeadAttention("mha", changed, {.heads = 2, .mask = visible})));
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
                           .apply2(PReLU, "prelu", PReLUOptions{})
                           .FullyConnected("fc", {.units = 3});
  predict();
  at::Tensor z = at::relu(Conv2D("conv", x, {.filters = 2, .kernel_size = 3}));
  z = FullyConnected("fc", PReLU("prelu", MaxPooling("pool", z, 2)), {.units = 3});
  EXPECT_TRUE(at::equal(y, z));
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
      "[Conv2DTranspose 'gen/t2', input [2, 3, 8, 8]]");
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

}  // namespace
}  // namespace tensorpack::test
