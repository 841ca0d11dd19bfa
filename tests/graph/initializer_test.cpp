// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/initializer.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include <cmath>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

at::Tensor draw(const Initializer& initializer, at::IntArrayRef shape, uint64_t seed = 1) {
  at::Tensor value = at::zeros(shape);
  initializer(value, at::detail::createCPUGenerator(seed));
  return value;
}

double average(const at::Tensor& value) { return value.mean().item<double>(); }
double stddev(const at::Tensor& value) { return value.std().item<double>(); }

TEST(InitializerTest, ConstantsFill) {
  EXPECT_TRUE(at::equal(draw(init::zeros(), {3}), at::zeros({3})));
  EXPECT_TRUE(at::equal(draw(init::ones(), {3}), at::ones({3})));
  EXPECT_TRUE(at::equal(draw(init::constant(2.5), {3}), at::full({3}, 2.5)));
  EXPECT_TRUE(
      at::equal(draw(init::from(at::arange(3).to(at::kFloat)), {3}), at::arange(3).to(at::kFloat)));
}

TEST(InitializerTest, FromNeedsTheSameShape) {
  EXPECT_ERROR(draw(init::from(at::ones({2})), {3}), "the given value has shape [2]");
}

TEST(InitializerTest, NormalHasItsMoments) {
  const at::Tensor value = draw(init::normal(0.5, 2), {20000});
  EXPECT_NEAR(average(value), 2, 0.02);
  EXPECT_NEAR(stddev(value), 0.5, 0.02);
}

TEST(InitializerTest, TruncatedNormalStaysWithinTwoDeviations) {
  const at::Tensor value = draw(init::truncated_normal(0.5, 1), {20000});
  EXPECT_LE((value - 1).abs().max().item<double>(), 1.0 + 1e-5);
  EXPECT_NEAR(average(value), 1, 0.02);
  EXPECT_NEAR(stddev(value), 0.5 * 0.8796, 0.01);
}

TEST(InitializerTest, UniformStaysWithinItsBounds) {
  const at::Tensor value = draw(init::uniform(-1, 3), {20000});
  EXPECT_GE(value.min().item<double>(), -1);
  EXPECT_LT(value.max().item<double>(), 3);
  EXPECT_NEAR(average(value), 1, 0.05);
}

TEST(InitializerTest, HeNormalHasVarianceTwoOverFanIn) {
  EXPECT_NEAR(stddev(draw(init::he_normal(), {64, 32, 3, 3})), std::sqrt(2. / (32 * 9)), 2e-3);
}

TEST(InitializerTest, XavierUniformHasVarianceTwoOverBothFans) {
  const at::Tensor value = draw(init::xavier_uniform(), {100, 300});
  EXPECT_NEAR(stddev(value), std::sqrt(2. / 400), 2e-3);
  EXPECT_LE(value.abs().max().item<double>(), std::sqrt(6. / 400) + 1e-6);
}

TEST(InitializerTest, TruncatedVarianceScalingKeepsTheVariance) {
  const auto initializer = init::variance_scaling({
      .scale = 1,
      .mode = init::FanMode::kOut,
      .distribution = init::Distribution::kTruncatedNormal,
  });
  EXPECT_NEAR(stddev(draw(initializer, {100, 300})), 0.1, 2e-3);
}

TEST(InitializerTest, OrthogonalRowsOrColumnsAreOrthonormal) {
  const at::Tensor wide = draw(init::orthogonal(), {4, 10});
  EXPECT_TRUE(at::allclose(at::mm(wide, wide.t()), at::eye(4), 1e-4, 1e-5));
  const at::Tensor tall = draw(init::orthogonal(2), {10, 4});
  EXPECT_TRUE(at::allclose(at::mm(tall.t(), tall), at::eye(4) * 4, 1e-4, 1e-5));
}

TEST(InitializerTest, FansNeedTwoDimensions) {
  EXPECT_ERROR(draw(init::he_normal(), {3}), "a weight of shape [3] has no fan");
  EXPECT_ERROR(draw(init::orthogonal(), {3}), "a tensor of shape [3] cannot be orthogonal");
}

at::Tensor first_value(uint64_t seed, const std::vector<std::string>& names,
                       const std::string& wanted) {
  Graph graph({.seed = seed});
  CallScope call(graph);
  for (const std::string& name : names) get_variable(name, {50}, init::normal(1));
  return graph.variables().at(wanted).tensor.detach();
}

TEST(InitializerTest, FirstValuesDependOnSeedAndNameAlone) {
  const at::Tensor alone = first_value(7, {"b"}, "b");
  EXPECT_TRUE(at::equal(alone, first_value(7, {"a", "b", "c"}, "b")));
  EXPECT_TRUE(at::equal(alone, first_value(7, {"c", "b"}, "b")));
  EXPECT_FALSE(at::equal(alone, first_value(8, {"b"}, "b")));
  EXPECT_FALSE(at::equal(alone, first_value(7, {"a", "b"}, "a")));
}

TEST(InitializerTest, MakingVariablesLeavesTheDefaultGeneratorAlone) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  first_value(7, {"a", "b"}, "a");
  EXPECT_TRUE(at::equal(before, generator.get_state()));
}

}  // namespace
}  // namespace tensorpack
