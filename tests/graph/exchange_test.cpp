// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/exchange.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/graph/record_op.h"

namespace tensorpack {
namespace {

using Tensors = std::vector<at::Tensor>;

// Multiplies by ten, so that it shows, and notes what it was asked.
class TenTimes final : public Exchange {
 public:
  Tensors begin(int64_t key, at::TensorList tensors) override {
    calls.push_back("begin " + std::to_string(key));
    Tensors results;
    for (const at::Tensor& tensor : tensors) results.push_back(tensor * 10);
    return results;
  }
  void end(int64_t key, at::TensorList) override { calls.push_back("end " + std::to_string(key)); }

  std::vector<std::string> calls;
};

Op define_two_exchanges(Graph& graph, bool exchanges) {
  return graph.define(
      {.name = "step", .inputs = {{"x", {2}}}, .body = [&graph, exchanges](const Tensors& in) {
         CallScope call(graph, {.exchanges = exchanges});
         const at::Tensor a = average_over_towers({in[0]})[0];
         const at::Tensor b = average_over_towers({in[0] + 1})[0];
         return NamedTensors{{"a", a}, {"b", b}};
       }});
}

Program make_program(Graph& graph, const Op& op, const std::vector<std::string>& fetches) {
  Trace trace = record_op(graph, op, {at::ones({2})}).recording.trace;
  optimize(trace, fetches);
  return Program(trace, fetches);
}

TEST(ExchangeTest, WhereNothingIsBoundTensorsComeBackAsTheyWere) {
  Graph graph;
  Program program = make_program(graph, define_two_exchanges(graph, true), {"a", "b"});
  const Tensors values = program.run({at::full({2}, 3.F)});
  EXPECT_EQ(values[0][0].item<float>(), 3);
  EXPECT_EQ(values[1][0].item<float>(), 4);
}

TEST(ExchangeTest, WhatIsBoundToTheThreadIsUsedInTheOrderOfTheProgram) {
  Graph graph;
  Program program = make_program(graph, define_two_exchanges(graph, true), {"a", "b"});
  TenTimes exchange;
  const ExchangeScope bound(&exchange);
  const Tensors values = program.run({at::full({2}, 3.F)});
  EXPECT_EQ(values[0][0].item<float>(), 30);
  EXPECT_EQ(values[1][0].item<float>(), 40);
  EXPECT_THAT(exchange.calls, testing::ElementsAre("begin 0", "end 0", "begin 1", "end 1"));
}

TEST(ExchangeTest, WhatNobodyReadsIsExchangedAllTheSame) {
  Graph graph;
  Program program = make_program(graph, define_two_exchanges(graph, true), {});
  TenTimes exchange;
  const ExchangeScope bound(&exchange);
  program.run({at::ones({2})});
  EXPECT_THAT(exchange.calls, testing::ElementsAre("begin 0", "end 0", "begin 1", "end 1"));
}

// One that was updated earlier might still be read by another tower.
TEST(ExchangeTest, SharedVariablesAreUpdatedWhenTheLastBucketIsThere) {
  Graph graph;
  const Op op = graph.define(
      {.name = "step", .inputs = {{"x", {2}}}, .body = [&graph](const Tensors& in) {
         CallScope call(graph, {.exchanges = true, .updates = VariableUpdates::kShared});
         // Two types: two buckets.
         const Tensors averages = average_over_towers({in[0], in[0].to(at::kDouble)});
         return NamedTensors{{"a", averages[0] + 1}, {"b", averages[1] + 1}};
       }});
  Trace trace = record_op(graph, op, {at::ones({2})}).recording.trace;
  optimize(trace, {"a", "b"});
  overlap_exchanges(trace);
  std::vector<std::string> names;
  for (const Node& node : trace.nodes) {
    const std::string name = node.op_name().substr(0, node.op_name().find('.'));
    if (name != "aten::_to_copy") names.push_back(name);
  }
  EXPECT_THAT(names, testing::ElementsAre("tensorpack::exchange_begin",
                                          "tensorpack::exchange_begin", "tensorpack::exchange_end",
                                          "tensorpack::exchange_end", "aten::add", "aten::add"));
}

TEST(ExchangeTest, ATowerThatIsAloneRecordsNothing) {
  Graph graph;
  const Op op = define_two_exchanges(graph, false);
  const Trace trace = record_op(graph, op, {at::ones({2})}).recording.trace;
  EXPECT_EQ(trace.nodes.size(), 1U) << "the addition";
}

}  // namespace
}  // namespace tensorpack
