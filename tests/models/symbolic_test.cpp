// SPDX-License-Identifier: Apache-2.0
// Forms of fixed shape for what libtorch does on the host.
#include "tensorpack/models/symbolic.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "tensorpack/graph/graph.h"
#include "tensorpack/session/session.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using at::Tensor;

TEST(SymbolicTest, OneHotIsThatOfLibtorch) {
  const Tensor labels = at::tensor({2, 0, 1, 2}, at::kLong).reshape({2, 2});
  EXPECT_TRUE(at::equal(one_hot(labels, 4), at::one_hot(labels, 4)));
  EXPECT_EQ(tensorpack::one_hot(at::tensor({7}, at::kLong), 4).sum().item<int64_t>(), 0);
  EXPECT_ERROR(tensorpack::one_hot(at::ones({2}), 4), "labels must be integers");
}

TEST(SymbolicTest, MaskedReductionsAreThoseOfTheSelection) {
  const Tensor x = at::randn({5, 4});
  const Tensor mask = x > 0.1;
  EXPECT_TRUE(at::allclose(masked_sum(x, mask), x.masked_select(mask).sum()));
  EXPECT_TRUE(at::allclose(masked_mean(x, mask), x.masked_select(mask).mean()));
  EXPECT_EQ(masked_mean(x, at::zeros_like(mask)).item<float>(), 0);
  const Tensor rows = mask.any(1, /*keepdim=*/true);
  EXPECT_TRUE(at::allclose(masked_mean(x, rows), x.masked_select(rows.expand_as(x)).mean()));
}

TEST(SymbolicTest, WhatIsLeftOutMayBeInfinite) {
  const Tensor x = at::tensor({1.F, std::numeric_limits<float>::infinity()});
  EXPECT_EQ(masked_sum(x, x < 5).item<float>(), 1);
}

TEST(SymbolicTest, AllOfThemCanBeRecorded) {
  Graph graph;
  const Op op = graph.define({.name = "op",
                              .inputs = {{"x", {-1}}},
                              .body = [](const std::vector<Tensor>& in) -> NamedTensors {
                                const Tensor mask = in[0] > 1;
                                return {{"hot", tensorpack::one_hot(in[0].to(at::kLong), 4)},
                                        {"mean", masked_mean(in[0], mask)},
                                        {"set", masked_assign(in[0], mask, at::zeros({}))}};
                              }});
  Session session(graph);
  const Tensor x = at::tensor({0.F, 1.F, 2.F, 3.F});
  const FetchedValues values = session.run(op, {"hot", "mean", "set"}, {{"x", x}});
  EXPECT_TRUE(at::equal(values[0], at::eye(4, at::kLong)));
  EXPECT_EQ(values[1].item<float>(), 2.5F);
  EXPECT_TRUE(at::equal(values[2], at::tensor({0.F, 1.F, 0.F, 0.F})));
}

}  // namespace
}  // namespace tensorpack
