// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session.h"

#include <gmock/gmock.h>

#include "tensorpack/graph/dump.h"
#include "tensorpack/tower/tower_handle.h"
#include "tests/session/models.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;

class SessionTest : public testing::TestWithParam<ExecutorKind> {
 protected:
  SessionOptions options() const { return {.executor = GetParam()}; }
};

INSTANTIATE_TEST_SUITE_P(All, SessionTest,
                         testing::Values(ExecutorKind::kReplay, ExecutorKind::kEager),
                         [](const testing::TestParamInfo<ExecutorKind>& info) {
                           return info.param == ExecutorKind::kReplay ? "Replay" : "Eager";
                         });

TEST_P(SessionTest, FetchesComeInTheOrderAskedFor) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    return {{"a", x.sum()}, {"b", x.mean()}};
  });
  Session session(graph, options());
  const at::Tensor x = batch_of(2);
  const FetchedValues values = session.run(op, {"b", "x", "a", "b"}, {{"x", x}});
  EXPECT_TRUE(at::equal(values[0], x.mean()));
  EXPECT_TRUE(at::equal(values[1], x));
  EXPECT_TRUE(at::equal(values[2], x.sum()));
  EXPECT_TRUE(at::equal(values[3], x.mean()));
}

TEST_P(SessionTest, VariablesAreFetchedAsTheyAreAfterTheRun) {
  Graph graph;
  const Op op = define_regression(graph);
  Session session(graph, options());
  const at::Tensor before = graph.variables().at("W").tensor.detach().clone();
  const at::Tensor after = session.run(op, {"W"}, {{"x", batch_of(2)}})[0];
  EXPECT_FALSE(at::equal(before, after));
  EXPECT_TRUE(at::equal(after, graph.variables().at("W").tensor));
  EXPECT_FALSE(after.requires_grad());
}

TEST_P(SessionTest, FetchedValuesOutliveLaterRuns) {
  Graph graph;
  const Op op = define_regression(graph);
  Session session(graph, options());
  const at::Tensor buffer = batch_of(2);
  const FetchedValues values = session.run(op, {"gradient", "x"}, {{"x", buffer}});
  const at::Tensor& first = values[0];
  const at::Tensor copy = first.clone();
  buffer.fill_(5);
  session.run(op, {"gradient"}, {{"x", buffer}});
  EXPECT_TRUE(at::equal(first, copy));
  EXPECT_TRUE(at::equal(values[1], batch_of(2)));
  EXPECT_FALSE(first.is_inference());
  EXPECT_TRUE((first.set_requires_grad(true) * 2).requires_grad());
}

TEST_P(SessionTest, TheFirstRunCountsOnce) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    const at::Tensor count = get_variable("count", {}, {.role = VariableRole::kLocal});
    at::NoGradGuard no_grad;
    count.add_(1);
    return {{"y", x + count}};
  });
  Session session(graph, options());
  EXPECT_EQ(graph.variables().at("count").tensor.item<float>(), 0);
  for (int i = 1; i <= 3; ++i) {
    session.run(op, {}, {{"x", batch_of(2)}});
    EXPECT_EQ(graph.variables().at("count").tensor.item<float>(), static_cast<float>(i));
  }
}

TEST_P(SessionTest, RunsWhereGradientsAreSwitchedOff) {
  Graph graph;
  const Op op = define_regression(graph);
  Session session(graph, options());
  at::NoGradGuard no_grad;
  session.run(op, {"cost"}, {{"x", batch_of(2)}});
  EXPECT_FALSE(at::GradMode::is_enabled());
}

TEST_P(SessionTest, InputsComeFromTheSourceUnlessFed) {
  Graph graph;
  int given = 0;
  const Op op = graph.define({
      .name = "sum",
      .inputs = {{"x", {-1}}, {"y", {-1}}},
      .body = [](const Tensors& in) -> NamedTensors {
        return {{"sum", (in[0] + in[1]).sum()}};
      },
      .feeder = [&]() -> std::optional<Tensors> {
        if (++given == 3) return std::nullopt;
        return Tensors{at::ones({2}), at::ones({2})};
      },
  });
  Session session(graph, options());
  EXPECT_EQ(session.run(op, {"sum"})[0].item<float>(), 4);
  EXPECT_EQ(session.run(op, {"sum"}, {{"y", at::zeros({2})}})[0].item<float>(), 2);
  EXPECT_THROW(session.run(op, {"sum"}), EndOfData);
  EXPECT_EQ(given, 3);
  session.run(op, {"sum"}, {{"x", at::zeros({2})}, {"y", at::zeros({2})}});
  EXPECT_EQ(given, 3);  // everything was fed
}

TEST_P(SessionTest, WrongFeedsAreNamed) {
  Graph graph;
  const Op op = define_regression(graph);
  Session session(graph, options());
  EXPECT_ERROR(session.run(op, {}, {{"x", at::ones({2, 4})}}),
               "'x' must have shape [-1, 3], got [2, 4]");
  EXPECT_ERROR(session.run(op, {}, {{"x", at::ones({2, 3}, at::kDouble)}}),
               "'x' must be of type Float, got Double");
  EXPECT_ERROR(session.run(op, {}, {{"X", at::ones({2, 3})}}),
               "[run 'step'] 'X' was fed but is not an input.");
  EXPECT_ERROR(session.run(op), "the op has no input source, and was fed 0 of 1 input");
}

TEST_P(SessionTest, AnUnknownFetchIsRefusedBeforeAnythingRuns) {
  Graph graph;
  const Op op = define_regression(graph);
  Session session(graph, options());
  const at::Tensor before = graph.variables().at("W").tensor.detach().clone();
  EXPECT_ERROR(session.run(op, {"cots"}, {{"x", batch_of(2)}}),
               "[run 'step'] no tensor named 'cots' in op 'step'. Did you mean 'cost'?");
  EXPECT_TRUE(at::equal(before, graph.variables().at("W").tensor));
}

TEST_P(SessionTest, AnEmptyOpIsRefused) {
  Graph graph;
  Session session(graph, options());
  EXPECT_ERROR(session.run(Op()), "the op is empty");
}

TEST_P(SessionTest, GroupsRunTheirMembersInOrder) {
  Graph graph;
  std::vector<std::string> calls;
  const Op host = Op::host("host", [&] { calls.push_back("host"); });
  const Op a = define_on_x(
      graph,
      [](const at::Tensor& x) -> NamedTensors {
        return {{"a", x.sum()}};
      },
      "a");
  const Op b = graph.define(
      {.name = "b", .inputs = {{"z", {-1}}}, .body = [](const Tensors& in) -> NamedTensors {
         return {{"b", in[0].sum()}};
       }});
  const Op group = Op::group("all", {a, host, Op::group("inner", {b, host})});
  Session session(graph, options());
  const FetchedValues values = session.run(group, {"b", "a", "global_step", "z"},
                                           {{"x", at::ones({2, 3})}, {"z", at::ones({4})}});
  EXPECT_EQ(values[0].item<float>(), 4);
  EXPECT_EQ(values[1].item<float>(), 6);
  EXPECT_EQ(values[2].item<int64_t>(), 0);
  EXPECT_EQ(values[3].numel(), 4);
  EXPECT_THAT(calls, ElementsAre("host", "host"));
  EXPECT_ERROR(session.run(group, {}, {{"w", at::ones({2})}}), "'w' was fed but is not an input");
}

TEST_P(SessionTest, ATensorOfATowerIsFetchedByReference) {
  Graph graph;
  const Op op = define_regression(graph);
  const TowerHandle tower(graph, "", true, op);
  Session session(graph, options());
  const at::Tensor cost = session.run(tower["cost"], {{"x", batch_of(2)}});
  EXPECT_EQ(cost.dim(), 0);
}

TEST_P(SessionTest, BatchNormStatisticsAdvanceOncePerRun) {
  Graph graph;
  const Op op = define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    const at::Tensor mean = get_variable("mean", {3}, {.role = VariableRole::kModel});
    const at::Tensor variance =
        get_variable("variance", {3}, {.init = init::ones(), .role = VariableRole::kModel});
    return {{"y", at::batch_norm(x, {}, {}, mean, variance, true, 0.5, 1e-5, false)}};
  });
  Session session(graph, options());
  session.run(op, {}, {{"x", at::eye(3) * 3}});
  EXPECT_TRUE(at::allclose(graph.variables().at("mean").tensor, at::full({3}, 0.5)));
}

TEST(SessionTraceTest, ShowsWhatAnOpRunsAndChangesNothing) {
  Graph graph;
  const Op op = graph.define({.name = "step",
                              .inputs = {{"x", {-1, 3}}},
                              .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
                                CallScope call(graph);
                                const at::Tensor w = get_variable("W", {3}, init::ones());
                                at::NoGradGuard no_grad;
                                w.mul_(2);
                                return {{"y", in[0] * w}};
                              }});
  Session session(graph);
  EXPECT_THAT(dump_text(session.trace(op)),
              testing::AllOf(testing::HasSubstr("aten::mul_"), testing::HasSubstr("$W"),
                             testing::HasSubstr("output y")));
  EXPECT_TRUE(at::equal(graph.variables().at("W").tensor, at::ones({3})));
  EXPECT_ERROR(session.trace(Op::nothing()), "is not a recorded function");
}

TEST(SessionTest, OneOpRunsByAnotherExecutor) {
  Graph graph;
  int eager_calls = 0, recorded_calls = 0;
  const auto define = [&](const std::string& name, int& calls) {
    return graph.define({.name = name,
                         .inputs = {{"x", {-1}}},
                         .body = [&calls](const Tensors& in) -> NamedTensors {
                           ++calls;
                           return {{"y", in[0] + 1}};
                         }});
  };
  const Op eager = define("validate/tower0", eager_calls),
           recorded = define("train", recorded_calls);
  Session session(graph, {.executor_of = {{"validate", ExecutorKind::kEager}}, .verify = false});
  const int defined = eager_calls;
  for (int run = 0; run < 3; ++run) {
    EXPECT_EQ(session.run(eager, {"y"}, {{"x", at::ones({1})}})[0].item<float>(), 2);
    EXPECT_EQ(session.run(recorded, {"y"}, {{"x", at::ones({1})}})[0].item<float>(), 2);
  }
  EXPECT_EQ(eager_calls, defined + 3);
  EXPECT_EQ(recorded_calls, defined + 1);
  EXPECT_EQ(executor_of(session.options(), eager), ExecutorKind::kEager);
  EXPECT_EQ(executor_of(session.options(), recorded), ExecutorKind::kDefault);
}

TEST(SessionTest, AnExecutorOfAnUnknownOpIsAnError) {
  Graph graph;
  define_regression(graph);
  EXPECT_ERROR(Session(graph, {.executor_of = {{"validation", ExecutorKind::kEager}}}),
               "executor_of names 'validation', and no op is called so.");
}

TEST(SessionTest, FusionRecomputeAndCopiesDecideThePasses) {
  const PassSwitches usual = pass_switches({}, c10::kCUDA);
  EXPECT_TRUE(usual.convolutions && usual.pointwise && usual.max_pool && !usual.keep_copies);
  EXPECT_EQ(usual.recompute, Recompute::kSome);
  const PassSwitches exact = pass_switches({.fusion = Fusion::kExact}, c10::kCPU);
  EXPECT_TRUE(exact.max_pool && !exact.convolutions && !exact.pointwise);
  EXPECT_FALSE(pass_switches({.fusion = Fusion::kExact}, c10::kCUDA).max_pool);
  const PassSwitches none = pass_switches(
      {.fusion = Fusion::kNone, .recompute = Recompute::kNever, .keep_weight_copies = true},
      c10::kCUDA);
  EXPECT_FALSE(none.max_pool || none.memsets || none.side_stream || none.convolutions);
  EXPECT_TRUE(none.keep_copies);
  EXPECT_EQ(none.recompute, Recompute::kNever);
  const auto only_pooling = [](PassSwitches& switches) { switches.max_pool = true; };
  EXPECT_TRUE(
      pass_switches({.fusion = Fusion::kNone, .debug_passes = only_pooling}, c10::kCUDA).max_pool);
}

#ifndef TENSORPACK_HAS_CUDA
TEST(SessionTest, CudaGraphsWithoutCudaAreAnError) {
  Graph graph;
  EXPECT_ERROR(Session(graph, {.executor = ExecutorKind::kCudaGraph}),
               "this library was built without CUDA");
}
#endif

TEST(FetchedValuesTest, AreReadAsAVectorIs) {
  const FetchedValues values({at::zeros({}), at::ones({}), at::full({}, 2)});
  EXPECT_EQ(values.size(), 3U);
  EXPECT_FALSE(values.empty());
  double sum = 0;
  for (const at::Tensor& value : values) sum += value.item<double>();
  EXPECT_EQ(sum, 3);
  const FetchedValues part = values.slice(1, 3);
  EXPECT_EQ(part.size(), 2U);
  EXPECT_EQ(part[1].item<double>(), 2);
  const std::vector<at::Tensor>& vector = part.get();
  EXPECT_EQ(vector[0].item<double>(), 1);
  EXPECT_TRUE(FetchedValues().empty());
}

}  // namespace
}  // namespace tensorpack
