// SPDX-License-Identifier: Apache-2.0
// Statistics of less than the batch of a tower, and of more.
#include "tensorpack/models/batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/models/conv2d.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/tower/precision.h"
#include "tests/models/fixture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

at::Tensor gradient_of(const at::Tensor& cost, const at::Tensor& x) {
  return torch::autograd::grad({cost}, {x}, {}, /*retain_graph=*/true)[0];
}

// Neither linear nor symmetric, so that gradients through the statistics do not vanish.
at::Tensor cost_of(const at::Tensor& y) { return y.pow(3).sum() + y.select(0, 0).square().sum(); }

at::Tensor moments_of(const at::Tensor& x) {
  const Shape over = x.dim() == 4 ? Shape{0, 2, 3} : Shape{0};
  return at::stack({x.mean(over), x.square().mean(over)});
}

TEST_F(LayersTest, VirtualBatchesAreNormalisedByThemselves) {
  train();
  const at::Tensor x = at::randn({6, 2, 3, 3});
  const at::Tensor y = BatchNorm("ghost", x, {.virtual_batch_size = 2});
  for (int64_t i = 0; i < 3; ++i) {
    const std::string name = "part" + std::to_string(i);
    EXPECT_TRUE(at::allclose(y.narrow(0, 2 * i, 2), BatchNorm(name, x.narrow(0, 2 * i, 2))));
  }
  EXPECT_TRUE(at::equal(variable("ghost/mean/EMA"), variable("part0/mean/EMA")));
  EXPECT_TRUE(at::equal(variable("ghost/variance/EMA"), variable("part0/variance/EMA")));
}

TEST_F(LayersTest, VirtualBatchesConcernTrainingAlone) {
  const at::Tensor x = at::randn({6, 2});
  train();
  BatchNorm("bn", x, {.virtual_batch_size = 2});
  predict();
  const at::Tensor y = BatchNorm("bn", x.narrow(0, 0, 5), {.virtual_batch_size = 2});
  const at::Tensor expected =
      (x - variable("bn/mean/EMA")) / (variable("bn/variance/EMA") + 1e-5).sqrt();
  EXPECT_TRUE(at::allclose(y, expected.narrow(0, 0, 5), 1e-4, 1e-6));
}

TEST_F(LayersTest, ABatchIsAMultipleOfItsVirtualBatchesOrNoLarger) {
  train();
  const at::Tensor x = at::randn({6, 2});
  EXPECT_TRUE(at::equal(BatchNorm("large", x, {.virtual_batch_size = 8}), BatchNorm("none", x)));
  EXPECT_ERROR(BatchNorm("odd", x, {.virtual_batch_size = 4}),
               "[BatchNorm 'odd'] a batch of 6 cannot be split by a virtual_batch_size of 4");
  EXPECT_ERROR(BatchNorm("zero", x, {.virtual_batch_size = 0}), "virtual_batch_size of 0");
}

// Two towers in one: the average over both is taken from the other half's input.
TEST_F(LayersTest, SyncedStatisticsOfTwoTowersAreThoseOfTheWholeBatch) {
  for (const Shape& shape : {Shape{8, 3}, Shape{8, 3, 4, 4}}) {
    train();
    const at::Tensor x = (at::randn(shape) * 2 + 1).requires_grad_(true);
    const at::Tensor whole = BatchNorm("whole", x);
    const std::vector<at::Tensor> halves = x.chunk(2);
    std::vector<at::Tensor> parts;
    for (int i = 0; i < 2; ++i) {
      const CrossTowerAverage average = [&](const at::Tensor& own) {
        return (own + moments_of(halves[1 - i])) / 2;
      };
      parts.push_back(
          BatchNorm("half" + std::to_string(i), halves[i], {.sync_statistics = average}));
    }
    const at::Tensor synced = at::cat(parts);
    EXPECT_TRUE(at::allclose(synced, whole, 1e-4, 1e-5));
    EXPECT_TRUE(
        at::allclose(gradient_of(cost_of(synced), x), gradient_of(cost_of(whole), x), 1e-3, 1e-4));
    EXPECT_TRUE(at::allclose(variable("half0/mean/EMA"), variable("whole/mean/EMA")));
  }
}

TEST_F(LayersTest, SyncedStatisticsUseAndTrainBetaAndGamma) {
  train();
  const at::Tensor x = at::randn({8, 3, 2, 2});
  const CrossTowerAverage alone = [](const at::Tensor& own) { return own; };
  const at::Tensor plain = BatchNorm("plain", x, {.gamma_init = init::constant(3)});
  const at::Tensor synced =
      BatchNorm("synced", x, {.gamma_init = init::constant(3), .sync_statistics = alone});
  EXPECT_TRUE(at::allclose(synced, plain, 1e-4, 1e-5));
  for (const char* name : {"gamma", "beta"}) {
    EXPECT_TRUE(at::allclose(gradient_of(cost_of(synced), variable(std::string("synced/") + name)),
                             gradient_of(cost_of(plain), variable(std::string("plain/") + name)),
                             1e-3, 1e-3))
        << name;
  }
}

TEST_F(LayersTest, SyncedStatisticsConcernTrainingAlone) {
  int calls = 0;
  const BatchNormOptions options{.sync_statistics = [&](const at::Tensor& own) {
    ++calls;
    EXPECT_EQ(VariableScope::current_path(), "bn");
    return own;
  }};
  train();
  BatchNorm("bn", at::randn({4, 2}), options);
  predict();
  BatchNorm("bn", at::randn({4, 2}), options);
  EXPECT_EQ(calls, 1);
}

TEST_F(LayersTest, SyncedStatisticsAreFloat32UnderMixedPrecision) {
  train();
  MixedPrecision bfloat16;
  const at::Tensor x = Conv2D("conv", at::randn({4, 2, 5, 5}), {.filters = 3, .kernel_size = 3});
  ASSERT_EQ(x.scalar_type(), at::kBFloat16);
  at::Tensor seen;
  const at::Tensor y =
      BatchNorm("bn", x, {.sync_statistics = [&](const at::Tensor& own) { return seen = own; }});
  EXPECT_EQ(seen.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(seen, moments_of(x.to(at::kFloat))));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
}

TEST_F(LayersTest, ImpossibleStatisticsAreErrors) {
  train();
  const at::Tensor x = at::randn({4, 2});
  const CrossTowerAverage sum = [](const at::Tensor& own) { return own.sum(); };
  EXPECT_ERROR(BatchNorm("a", x, {.virtual_batch_size = 2, .sync_statistics = sum}),
               "Set one of them");
  EXPECT_ERROR(BatchNorm("b", x, {.sync_statistics = sum}),
               "was given a tensor of shape [2, 2] and returned []");
}

TEST(BatchNormTest, ARecordedProgramKeepsTheStatisticsOfBothKinds) {
  for (const BatchNormOptions& options :
       {BatchNormOptions{.virtual_batch_size = 2},
        BatchNormOptions{.sync_statistics = [](const at::Tensor& own) { return own; }}}) {
    Graph graph;
    const Op op = graph.define({
        .name = "step",
        .inputs = {{"x", {-1, 3}}},
        .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
          TowerContext tower(graph);
          return {{"y", BatchNorm("bn", in[0], options)}};
        },
    });
    ProgramExecutor executor(graph, {});
    const at::Tensor x = at::randn({4, 3}) + 5;
    for (int i = 0; i < 3; ++i) executor.run(op, {x}, {"y"});
    const at::Tensor first = options.virtual_batch_size ? x.narrow(0, 0, 2) : x;
    EXPECT_TRUE(at::allclose(graph.variables().at("bn/mean/EMA").tensor,
                             first.mean(0) * (1 - 0.9 * 0.9 * 0.9), 1e-4, 1e-5));
    EXPECT_EQ(executor.recordings(), 1U);
  }
}

}  // namespace
}  // namespace tensorpack::test
