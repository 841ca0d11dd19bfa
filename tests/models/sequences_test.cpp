// SPDX-License-Identifier: Apache-2.0
// Layers over words and sequences against libtorch's own functions and modules.
#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>

#include "tensorpack/models/attention.h"
#include "tensorpack/models/embedding.h"
#include "tensorpack/models/recurrent.h"
#include "tests/models/fixture.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;

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

TEST_F(LayersTest, MultiHeadAttentionIsThatOfLibtorch) {
  train();
  const at::Tensor q = at::randn({2, 5, 8}), k = at::randn({2, 3, 6}), v = at::randn({2, 3, 6});
  const at::Tensor y = MultiHeadAttention("mha", q, k, v, {.heads = 2});
  EXPECT_THAT(shape_of("mha/k/W"), ElementsAre(8, 6));
  EXPECT_THAT(shape_of("mha/out/b"), ElementsAre(8));

  torch::nn::MultiheadAttention module(torch::nn::MultiheadAttentionOptions(8, 2).kdim(6).vdim(6));
  at::NoGradGuard no_grad;
  module->q_proj_weight.copy_(variable("mha/q/W"));
  module->k_proj_weight.copy_(variable("mha/k/W"));
  module->v_proj_weight.copy_(variable("mha/v/W"));
  module->in_proj_bias.copy_(
      at::cat({variable("mha/q/b"), variable("mha/k/b"), variable("mha/v/b")}));
  module->out_proj->weight.copy_(variable("mha/out/W"));
  module->out_proj->bias.copy_(variable("mha/out/b"));
  const auto [expected, weights] =
      module->forward(q.transpose(0, 1), k.transpose(0, 1), v.transpose(0, 1));
  EXPECT_TRUE(at::allclose(y, expected.transpose(0, 1), 1e-4, 1e-5));
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

}  // namespace
}  // namespace tensorpack::test
