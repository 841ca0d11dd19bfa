// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_func.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/tower/tower_context.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using at::Tensor;
using Tensors = std::vector<Tensor>;

Tensor free_function(const Tensor& a, const Tensor& b, const Tensor& c) { return a + b + c; }

TEST(TowerFuncTest, ArityIsDeduced) {
  EXPECT_EQ(TowerFunc([](Tensor a) { return a; }).arity(), 1);
  EXPECT_EQ(TowerFunc([](const Tensor& a, Tensor) { return a; }).arity(), 2);
  EXPECT_EQ(TowerFunc([] {}).arity(), 0);
  EXPECT_EQ(TowerFunc(free_function).arity(), 3);
  EXPECT_EQ(TowerFunc([](const Tensors&) {}).arity(), TowerFunc::kAnyArity);
}

TEST(TowerFuncTest, ReturnsATensorSeveralOrNothing) {
  Graph graph;
  TowerContext tower(graph);
  const Tensor x = at::ones({2});
  EXPECT_EQ(TowerFunc([](Tensor a) { return a; })({x}).size(), 1U);
  EXPECT_EQ(TowerFunc([](Tensor a) { return Tensors{a, a}; })({x}).size(), 2U);
  EXPECT_TRUE(TowerFunc([](Tensor) {})({x}).empty());
  EXPECT_EQ(TowerFunc([](const Tensors& all) { return all; })({x, x, x}).size(), 3U);
}

TEST(TowerFuncTest, ArityIsCheckedAgainstTheSignature) {
  const TowerFunc function = [](Tensor image, Tensor) { return image; };
  function.check_arity({{"image", {1}}, {"label", {1}}});
  EXPECT_ERROR(function.check_arity({{"image", {1}}}),
               "it takes 2 tensors, the input signature has 1 (image)");
  EXPECT_ERROR(TowerFunc().check_arity({}), "it is empty");
}

TEST(TowerFuncTest, IsCalledInsideAContextWithTheRightNumber) {
  const TowerFunc function = [](Tensor a) { return a; };
  EXPECT_ERROR(function({at::ones({1})}), "it is called outside a TowerContext");
  Graph graph;
  TowerContext tower(graph);
  EXPECT_ERROR(function({}), "it takes 1 tensor and was called with 0");
}

TEST(TowerFuncTest, StatefulCallablesKeepTheirState) {
  Graph graph;
  TowerContext tower(graph);
  const TowerFunc function = [count = 0](Tensor a) mutable { return a * ++count; };
  function({at::ones({1})});
  EXPECT_EQ(function({at::ones({1})})[0].item<float>(), 2);
}

}  // namespace
}  // namespace tensorpack
