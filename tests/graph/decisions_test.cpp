// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/decisions.h"

#include <gmock/gmock.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/record_op.h"
#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

// Counts in `step`, and exchanges its input every third time.
Trace every_third(const std::function<void(const at::Tensor& x, const at::Tensor& step)>& before,
                  Graph& graph) {
  const at::Tensor step =
      graph
          .create_variable("step", {}, {.role = VariableRole::kLocal, .dtype = at::kLong},
                           c10::kCPU)
          .tensor;
  const Op op =
      graph.define({.name = "step", .inputs = {{"x", {2}}}, .body = [&](const Tensors& in) {
                      CallScope call(graph, {.exchanges = true});
                      at::NoGradGuard no_grad;
                      before(in[0], step);
                      step.add_(1);
                      const at::Tensor is_due = step.remainder(3).eq(0);
                      const at::Tensor average = average_over_towers({in[0]}, is_due)[0];
                      return NamedTensors{{"y", at::where(is_due, average.neg(), average)}};
                    }});
  Trace trace = record_op(graph, op, {at::ones({2})}).recording.trace;
  graph.variables().at("step").tensor.zero_();
  optimize(trace, {"y"});
  overlap_exchanges(trace);
  return trace;
}

const auto kNothing = [](const at::Tensor&, const at::Tensor&) {};

TEST(DecisionsTest, AreMadeBeforeTheRestFromVariablesOfTheHost) {
  Graph graph;
  Trace rest = every_third(kNothing, graph);
  Decisions decisions(rest);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_EQ(rest.inputs.size(), 2U);
  EXPECT_THAT(operators(rest), ElementsAre("tensorpack::exchange_begin", "tensorpack::exchange_end",
                                           "aten::neg", "aten::where.self"));
  std::vector<bool> made;
  for (int i = 0; i < 7; ++i) made.push_back(decisions.make()[0]);
  EXPECT_THAT(made, ElementsAre(false, false, true, false, false, true, false));
  EXPECT_EQ(graph.variables().at("step").tensor.item<int64_t>(), 7);
}

TEST(DecisionsTest, FollowTheVariableWhereverItIsSetTo) {
  Graph graph;
  Trace rest = every_third(kNothing, graph);
  Decisions decisions(rest);
  graph.variables().at("step").tensor.fill_(1);
  EXPECT_THAT(decisions.make(), ElementsAre(false));
  EXPECT_THAT(decisions.make(), ElementsAre(true));
}

TEST(DecisionsTest, TheRestGivesWhatTheWholeGives) {
  Graph graph;
  const Trace whole = every_third(kNothing, graph);
  Trace rest = whole;
  Decisions decisions(rest);
  const at::Tensor step = graph.variables().at("step").tensor;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::full({2}, i + 1.F);
    const at::Tensor expected = run(whole, {x}, "y");
    step.sub_(1);
    const at::Tensor is_due = at::scalar_tensor(bool{decisions.make()[0]}, at::kBool);
    EXPECT_TRUE(at::equal(run(rest, {x, is_due}, "y"), expected)) << i;
  }
}

// As a device would be told whether to keep an update.
TEST(DecisionsTest, AnAnswerForADeviceIsAnInputThere) {
  const at::Tensor step = at::zeros({}, at::kLong);
  Trace trace = trace_of({}, {step}, [&](const Tensors&) -> NamedTensors {
    step.add_(1);
    const at::Tensor is_due = step.remainder(2).eq(0);
    return {{"y", is_due.to(at::kMeta).bitwise_not()}};
  });
  optimize(trace, {"y"});
  Decisions decisions(trace);
  ASSERT_EQ(decisions.size(), 1U);
  EXPECT_THAT(operators(trace), ElementsAre("aten::bitwise_not"));
  EXPECT_TRUE(trace.values[trace.inputs[0]].options.device().is_meta());
}

TEST(DecisionsTest, WhoReadsACounterBeforeItIsWrittenKeepsTheWhole) {
  Graph graph;
  const at::Tensor copy = at::zeros({}, at::kLong);
  Trace trace =
      every_third([&](const at::Tensor&, const at::Tensor& step) { copy.copy_(step); }, graph);
  const size_t nodes = trace.nodes.size();
  Decisions decisions(trace);
  EXPECT_EQ(decisions.size(), 0U);
  EXPECT_EQ(trace.nodes.size(), nodes);
  EXPECT_THAT(decisions.make(), IsEmpty());
}

TEST(DecisionsTest, WhatDependsOnTheBatchIsNotDecidedBeforeIt) {
  Graph graph;
  Trace trace = every_third(
      [](const at::Tensor& x, const at::Tensor& step) { step.add_(x.sum().to(at::kLong)); }, graph);
  EXPECT_EQ(Decisions(trace).size(), 0U);
  EXPECT_EQ(trace.inputs.size(), 1U);
}

TEST(DecisionsTest, AnExchangeThatIsAlwaysDueDecidesNothing) {
  Graph graph;
  const Op op =
      graph.define({.name = "step", .inputs = {{"x", {2}}}, .body = [&graph](const Tensors& in) {
                      CallScope call(graph, {.exchanges = true});
                      return NamedTensors{{"y", average_over_towers({in[0]})[0]}};
                    }});
  Trace trace = record_op(graph, op, {at::ones({2})}).recording.trace;
  std::vector<ValueId> conditions;
  for (const Node& node : trace.nodes) conditions.push_back(condition_of(node));
  EXPECT_THAT(conditions, Each(kNoValue));
  EXPECT_EQ(Decisions(trace).size(), 0U);
}

}  // namespace
}  // namespace tensorpack
