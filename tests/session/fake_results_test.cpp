// SPDX-License-Identifier: Apache-2.0
// A function is recorded for a second time on tensors into which nothing is computed.
#include "tensorpack/session/fake_results.h"

#include <gmock/gmock.h>

#include <array>

#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/session/session.h"
#include "tensorpack/session/trace_change.h"
#include "tests/session/models.h"
#include "tests/support/throws.h"
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

Trace recording_of(Graph& graph, const Op& op, const Tensors& inputs) {
  const StateGuard guard(graph);
  return record_op(graph, op, inputs).recording.trace;
}

// Nothing if it had to compute.
std::optional<Recording> record_again(Graph& graph, const Op& op, const Tensors& inputs,
                                      const Trace& trace) {
  const FakeResults results(trace);
  StateGuard guard(graph);
  auto [recording, has_computed] =
      record_on_fake_results(graph, op, inputs, results, guard).value();
  if (has_computed) return std::nullopt;
  return std::move(recording);
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

// Losses keep all that their gradients are computed from.
TEST_P(FakeZooTest, WhatTheFunctionKeepsHoldsWhatWasComputed) {
  const ZooCase& c = GetParam();
  for (const bool calls_another : {false, true}) {
    SCOPED_TRACE(calls_another);
    Graph graph({.seed = 1});
    Tensors kept;
    bool is_first = true;
    ZooModel model = *c.model;
    model.build = [&](const Tensors& in) {
      const std::vector<ZooLoss> losses = c.model->build(in);
      for (const ZooLoss& loss : losses) kept.push_back(loss.value);
      if (!is_first && calls_another) kept.push_back(losses[0].value.detach().atan());
      return losses;
    };
    const Op op = define_training(graph, model, c.optimizer);
    const Tensors batch = model.make_batch(0);
    kept.clear();
    const Trace trace = recording_of(graph, op, batch);
    Tensors expected = kept;
    if (calls_another) expected.push_back(expected[0].detach().atan());
    std::map<std::string, at::Tensor> variables;
    for (const Variable& variable : graph.variables().all()) {
      variables[variable.name] = variable.tensor.detach().clone();
    }

    kept.clear();
    is_first = false;
    EXPECT_FALSE(record_again(graph, op, batch, trace));
    ASSERT_EQ(kept.size(), expected.size());
    for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(at::equal(kept[i], expected[i])) << i;
    for (const auto& [name, tensor] : variables) {
      EXPECT_TRUE(at::equal(graph.variables().at(name).tensor, tensor)) << name;
    }
  }
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
  const Trace trace = recording_of(graph, op, kBatch);
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
  const Trace trace = recording_of(graph, op, kBatch);
  value = 2;
  const std::optional<Recording> now = record_again(graph, op, kBatch, trace);
  ASSERT_TRUE(now);
  EXPECT_EQ(change_between(trace, now->trace).kind, TraceChange::Kind::kContents);
}

// It must find memory there, and the comparison must not count: it has found zeros.
TEST(FakeResults, ThatTheHostHasLookedAtAreOfNoUse) {
  for (const bool writes : {false, true}) {
    SCOPED_TRACE(writes);
    Graph graph;
    float seen = -1;
    const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
      const at::Tensor y = x + 1;
      float& last = y.data_ptr<float>()[y.numel() - 1];
      writes ? last = 2 : seen = last;
      return {{"y", y}};
    });
    const Trace trace = recording_of(graph, op, kBatch);
    const FakeResults results(trace);
    StateGuard guard(graph);
    EXPECT_FALSE(record_on_fake_results(graph, op, kBatch, results, guard));
    EXPECT_EQ(seen, writes ? -1 : 0);
  }
}

TEST(FakeResults, ABranchOnAResultThatTheHostLooksAtIsFound) {
  Graph graph;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor y = x * 2;
    return {{"y", y.data_ptr<float>()[0] > 10 ? y * 3 : y}};
  });
  Session session(graph);
  session.run(op, {"y"}, {{"x", kBatch[0]}});
  EXPECT_ERROR(session.run(op, {"y"}, {{"x", kBatch[0] * 100}}), "before run 2");
}

TEST(FakeResults, AreNotLeftInTheHandsOfTheFunction) {
  Graph graph;
  Tensors history;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    history.push_back(x + 1);
    return {{"y", history.back() * 2}};
  });
  Session session(graph);
  for (int run = 1; run <= 5; ++run) {
    history.clear();
    session.run(op, {"y"}, {{"x", at::full({2, 3}, static_cast<float>(run))}});
    if (run == 1 || run == 4) continue;  // recorded and verified; not compared
    ASSERT_EQ(history.size(), 1U) << "in run " << run;
    EXPECT_TRUE(at::equal(history[0], at::full({2, 3}, static_cast<float>(run) + 1)));
  }
}

// As a Transformer does with what hides later tokens.
TEST(FakeResults, AMaskThatIsMadeOnceForEachLengthIsRight) {
  Graph graph;
  at::Tensor mask;
  const Op op = graph.define({
      .name = "step",
      .inputs = {{"x", {2, -1}}},
      .body = [&](const Tensors& in) -> NamedTensors {
        const TowerContext tower(graph);
        const int64_t length = in[0].size(1);
        const at::Tensor every_call = at::ones({length, length}).tril();
        if (!mask.defined() || mask.size(0) != length) mask = at::ones({length, length}).tril();
        return {{"y", in[0].matmul(mask) + every_call.sum()}};
      },
  });
  Session session(graph);
  for (int run = 1; run <= 12; ++run) {
    const int64_t length = 3 + run % 2;
    const at::Tensor x = at::rand({2, length});
    const at::Tensor lower = at::ones({length, length}).tril();
    const at::Tensor y = session.run(op, {"y"}, {{"x", x}})[0];
    EXPECT_TRUE(at::allclose(y, x.matmul(lower) + lower.sum())) << "in run " << run;
  }
}

// The first call after the change is the one that makes the table.
TEST(FakeResults, ATableThatIsMadeAfterAnAnnouncedChangeIsRight) {
  Graph graph;
  double scale = 1;
  double scale_of_table = 0;
  at::Tensor table;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    if (scale_of_table != scale) {
      scale_of_table = scale;
      table = at::ones({3}).mul(scale).exp();
    }
    return {{"y", x * table}};
  });
  Session session(graph);
  for (int run = 1; run <= 6; ++run) {
    if (run == 4) {
      scale = 2;
      graph.announce_change();
    }
    const at::Tensor y = session.run(op, {"y"}, {{"x", kBatch[0]}})[0];
    EXPECT_FLOAT_EQ(y.max().item<float>(), static_cast<float>(std::exp(scale))) << "run " << run;
  }
}

// All kinds of memory that may be gone when it turns out that they are needed.
TEST(FakeResults, AreMadeUpForFromWhatIsLeft) {
  Graph graph;
  bool calls_another = false;
  at::Tensor kept;
  const at::Tensor state = at::ones({3});
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("w", {3}, init::ones());
    at::Tensor y = x * at::tensor({1.F, 2.F, 3.F}) * 0.5;
    y = y + at::zeros({3}).add(1) + at::empty({3}).fill_(2) + at::arange(3);
    std::array<float, 3> numbers = {1, 2, 3};
    y = y + at::from_blob(numbers.data(), {3});
    state.mul_(2).add_(1);
    y = y + state + at::rand_like(y) * 0;
    y.select(1, 0).mul_(3);
    y = at::cat(y.add(1).unbind(0), 0).reshape_as(x);
    at::NoGradGuard no_grad;
    w.add_(y.sum(0));
    y = y + w;
    w.mul_(2);
    kept = y.clone();
    at::Tensor z = calls_another ? at::rand_like(y.narrow(1, 0, 2)) : y;
    return {{"y", y * w}, {"z", z}};
  });
  const at::Tensor state_before = state.clone();
  const Trace trace = recording_of(graph, op, kBatch);
  const at::Tensor expected = kept;
  for (const bool another : {false, true}) {
    SCOPED_TRACE(another);
    calls_another = another;
    EXPECT_FALSE(record_again(graph, op, kBatch, trace));
    EXPECT_TRUE(at::equal(kept, expected)) << kept << expected;
    EXPECT_EQ(graph.variables().at("w").tensor.sum().item<double>(), 3);
    EXPECT_TRUE(at::equal(state, state_before));
  }
}

// A step takes what this takes: the next comparison is that before run 5.
TEST(FakeResults, WhereTheyMustBeComputedComparisonsAreRare) {
  Graph graph;
  int calls = 0;
  at::Tensor kept;
  const Op op = define_on_x(graph, [&](const at::Tensor& x) -> NamedTensors {
    ++calls;
    kept = x + 1;
    return {{"y", kept}};
  });
  Session session(graph);
  std::vector<int> calls_until;
  for (int run = 1; run <= 8; ++run) {
    session.run(op, {"y"}, {{"x", kBatch[0]}});
    calls_until.push_back(calls);
  }
  EXPECT_THAT(calls_until, testing::ElementsAre(3, 4, 5, 5, 6, 6, 6, 7));
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
