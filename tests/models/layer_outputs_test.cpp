// SPDX-License-Identifier: Apache-2.0
// The outputs that layers name can be fetched, and cost no memory when they are not.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/symbolic.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tests/support/capture.h"

namespace tensorpack::test {
namespace {

using at::Tensor;
using testing::HasSubstr;

class LayerOutputsTest : public testing::TestWithParam<ExecutorKind> {
 protected:
  // Runs `body` on a batch, with every named tensor as an output.
  Op define(std::function<void(const Tensor& x, CallScope& call)> body) {
    return graph_.define({
        .name = "predict",
        .inputs = {{"x", {-1, 3}}},
        .body =
            [this, body = std::move(body)](const std::vector<Tensor>& in) {
              at::NoGradGuard no_grad;
              TowerContext tower(graph_, {.is_training = false});
              body(in[0], tower.call());
              return tower.call().named_tensors();
            },
    });
  }

  Graph graph_;
  Feeds feeds_{{"x", at::ones({4, 3})}};
};

TEST_P(LayerOutputsTest, MemoryIsGivenBackAsInAPlainModelUnlessTheOutputIsFetched) {
  bool is_alive = false;
  const Op op = define([&](const Tensor& x, CallScope&) {
    Tensor l = FullyConnected("a", x, {.units = 5});
    const auto memory = l.storage().getWeakStorageImpl();
    l = FullyConnected("b", l, {.units = 2});
    is_alive = !memory.expired();
  });
  EXPECT_TRUE(is_alive);  // built to see what can be fetched
  Session session(graph_, {.executor = GetParam(), .verify = false});
  EXPECT_EQ(session.run(op, {"b/output"}, feeds_)[0].size(1), 2);
  EXPECT_FALSE(is_alive);
  EXPECT_EQ(session.run(op, {"a/output"}, feeds_)[0].size(1), 5);
}

TEST_P(LayerOutputsTest, TheFunctionItselfFindsThemByName) {
  const Op op = define([](const Tensor& x, CallScope& call) {
    FullyConnected("b", FullyConnected("a", x, {.units = 5}), {.units = 2});
    named("sum", call.tensor("a/output").sum());
  });
  Session session(graph_, {.executor = GetParam()});
  const FetchedValues values = session.run(op, {"sum", "a/output"}, feeds_);
  EXPECT_NEAR(values[0].item<double>(), values[1].sum().item<double>(), 1e-6);
}

TEST_P(LayerOutputsTest, TheyKnowTheirNames) {
  const Op op =
      define([](const Tensor& x, CallScope&) { print_stat(FullyConnected("a", x, {.units = 5})); });
  Session session(graph_, {.executor = GetParam(), .verify = false});
  session.run(op, {}, feeds_);
  EXPECT_THAT(stdout_of([&] { session.run(op, {}, feeds_); }), HasSubstr("a/output"));
}

INSTANTIATE_TEST_SUITE_P(Executors, LayerOutputsTest,
                         testing::Values(ExecutorKind::kReplay, ExecutorKind::kEager),
                         [](const auto& info) {
                           return info.param == ExecutorKind::kEager ? "Eager" : "Replay";
                         });

}  // namespace
}  // namespace tensorpack::test
