// SPDX-License-Identifier: Apache-2.0
// A function is recorded for a second time on tensors into which nothing is computed.
#include "tensorpack/session/fake_results.h"

#include <gmock/gmock.h>

#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/session/session.h"
#include "tensorpack/session/trace_change.h"
#include "tests/session/models.h"
#include "tests/support/zoo.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::Not;

const Tensors kBatch = {at::ones({2, 3})};

// Notes what is really run.
class Seen final : public OperatorWatch {
 public:
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    names.push_back(op.operator_name().name);
    pass_on(op, below, stack);
  }
  std::vector<std::string> names;
};

std::optional<Recording> record_again(Graph& graph, const Op& op, const Tensors& inputs,
                                      const Trace& trace) {
  const FakeResults results(trace);
  return record_on_fake_results(graph, op, inputs, results);
}

TEST(FakeResults, NothingIsComputed) {
  Graph graph;
  const Op op = define_regression(graph);
  const Recording before = record_op(graph, op, kBatch).recording;
  const at::Tensor weights = graph.variables().at("W").tensor.clone();
  const auto seen = std::make_shared<Seen>();
  std::optional<Recording> now;
  {
    const WatchScope watch(seen);
    now = record_again(graph, op, kBatch, before.trace);
  }
  ASSERT_TRUE(now);
  EXPECT_TRUE(change_between(before.trace, now->trace).where.empty());
  EXPECT_THAT(seen->names, Not(Contains("aten::mv")));
  EXPECT_THAT(seen->names, Not(Contains("aten::sub_")));
  EXPECT_TRUE(at::equal(graph.variables().at("W").tensor, weights));
}

class FakeZooTest : public testing::TestWithParam<ZooCase> {};

TEST_P(FakeZooTest, EveryModelIsRecordedAlike) {
  const ZooCase& c = GetParam();
  Graph graph({.seed = 1});
  const Op op = define_training(graph, *c.model, c.optimizer);
  const Tensors batch = c.model->make_batch(0);
  const Recording before = record_op(graph, op, batch).recording;
  const std::optional<Recording> now = record_again(graph, op, batch, before.trace);
  ASSERT_TRUE(now);
  EXPECT_EQ(change_between(before.trace, now->trace).where, "");
}

INSTANTIATE_TEST_SUITE_P(All, FakeZooTest, testing::ValuesIn(all_zoo_cases()),
                         [](const auto& info) { return name_of(info.param); });

TEST(FakeResults, AreNotKnownOfOtherNumbersOrShapes) {
  Graph graph;
  double weight = 2;
  int64_t rows = 2;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    return {{"y", x.narrow(0, 0, rows).mul(weight).sum(0)}};
  });
  const Trace trace = record_op(graph, op, kBatch).recording.trace;
  EXPECT_TRUE(record_again(graph, op, kBatch, trace));
  weight = 3;
  EXPECT_FALSE(record_again(graph, op, kBatch, trace));
  weight = 2;
  rows = 1;
  EXPECT_FALSE(record_again(graph, op, kBatch, trace));
}

TEST(FakeResults, WhatTheHostFillsIsReal) {
  Graph graph;
  float value = 1;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor filled = at::empty_like(x);
    std::fill_n(filled.data_ptr<float>(), filled.numel(), value);
    return {{"y", x * filled}};
  });
  const Trace trace = record_op(graph, op, kBatch).recording.trace;
  value = 2;
  const std::optional<Recording> now = record_again(graph, op, kBatch, trace);
  ASSERT_TRUE(now);
  EXPECT_EQ(change_between(trace, now->trace).kind, TraceChange::Kind::kContents);
}

// A function may look at a result through its pointer; it must find memory there.
TEST(FakeResults, ReadAsZero) {
  Graph graph;
  float seen = -1;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor y = x + 1;
    seen = y.data_ptr<float>()[y.numel() - 1];
    return {{"y", y}};
  });
  const Trace trace = record_op(graph, op, kBatch).recording.trace;
  EXPECT_EQ(seen, 2);
  EXPECT_TRUE(record_again(graph, op, kBatch, trace));
  EXPECT_EQ(seen, 0);
}

TEST(FakeResults, AreNotLeftInTheHandsOfTheFunction) {
  Graph graph;
  at::Tensor last;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    last = x + 1;
    return {{"y", last * 2}};
  });
  Session session(graph);
  for (int run = 1; run <= 5; ++run) {
    session.run(op, {"y"}, {{"x", at::full({2, 3}, static_cast<float>(run))}});
    if (run == 1) continue;
    EXPECT_GE(last.min().item<double>(), 2) << "after run " << run;
  }
}

TEST(FakeResults, AnErrorOfTheFunctionIsThatOfACallThatComputes) {
  Graph graph;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor y = x + 1;
    if (y.data_ptr<float>()[0] == 0) throw std::runtime_error("the host has read a fake tensor");
    return {{"y", y}};
  });
  Session session(graph);
  for (int run = 1; run <= 5; ++run) {
    EXPECT_EQ(session.run(op, {"y"}, {{"x", kBatch[0]}})[0].sum().item<double>(), 12);
  }
}

}  // namespace
}  // namespace tensorpack
