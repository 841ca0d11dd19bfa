// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/graph.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/utils/device.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using Tensors = std::vector<at::Tensor>;

TEST(StateGuardTest, PutsVariablesAndGeneratorsBack) {
  Graph graph;
  CallScope call(graph);
  const at::Tensor w = get_variable("W", {3}, init::constant(2));
  auto generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor before = generator.get_state();
  {
    StateGuard guard(graph);
    at::NoGradGuard no_grad;
    w.add_(1);
    at::rand({3});
    guard.restore();
    EXPECT_EQ(w[0].item<float>(), 2);
    w.add_(5);
  }
  EXPECT_EQ(w[0].item<float>(), 2);
  EXPECT_TRUE(at::equal(before, generator.get_state()));
}

TEST(StateGuardTest, VariableMadeMeanwhileGoesBackToItsFirstValue) {
  Graph graph;
  CallScope call(graph);
  at::Tensor w;
  {
    StateGuard outer(graph);
    StateGuard inner(graph);
    w = get_variable("W", {3}, init::constant(2));
    at::NoGradGuard no_grad;
    w.fill_(9);
  }
  EXPECT_EQ(w[0].item<float>(), 2);
}

TEST(StateGuardTest, ForeignStateCanBeAdded) {
  Graph graph;
  at::Tensor captured = at::zeros({2});
  SavedState state;
  state.save(captured);
  {
    StateGuard guard(graph);
    guard.add(state);
    captured.add_(1);
  }
  EXPECT_EQ(captured[0].item<float>(), 0);
}

TEST(GraphTest, AVariableIsKeptWhereTheFewestElementsAreYet) {
  const c10::Device a = c10::kCPU;  // has the step counter from the start
  const c10::Device b = check_device(c10::kMeta);
  Graph graph({.variable_devices = {a, b}});
  std::vector<c10::Device> places;
  for (const int64_t size : {10, 4, 4, 4, 1, 1}) {
    places.push_back(graph.place_of_variable(c10::kCPU));
    graph.create_variable(fmt::format("v{}", places.size()), {size}, {}, places.back());
  }
  EXPECT_THAT(places, testing::ElementsAre(b, a, a, a, b, b));
}

TEST(GraphTest, GlobalStepIsThereFromTheStart) {
  Graph graph;
  EXPECT_EQ(graph.global_step().tensor.item<int64_t>(), 0);
  EXPECT_EQ(graph.global_step().name, "global_step");
}

TEST(GraphTest, WhatIsAttachedIsMadeOnceForEachType) {
  struct Names {
    std::vector<std::string> list = {};
  };
  struct Count {
    int value = 3;
  };
  Graph graph;
  graph.attached<Names>().list.push_back("a");
  EXPECT_EQ(graph.attached<Count>().value, 3);
  EXPECT_THAT(graph.attached<Names>().list, testing::ElementsAre("a"));
  EXPECT_TRUE(Graph().attached<Names>().list.empty()) << "another graph has its own";
}

TEST(GraphTest, DefineRunsTheBodyOnceOnTrialInputsAndLeavesNoTrace) {
  Graph graph;
  int calls = 0;
  const Op op = graph.define({
      .name = "step",
      .inputs = {{"x", {-1, 3}}, {"label", {-1}, at::kLong}},
      .body = [&](const Tensors& in) -> NamedTensors {
        ++calls;
        EXPECT_EQ(in[0].sizes(), (at::IntArrayRef{2, 3}));
        EXPECT_EQ(in[1].scalar_type(), at::kLong);
        CallScope call(graph);
        at::Tensor w = get_variable("W", {3}, init::ones());
        at::NoGradGuard no_grad;
        w.add_(1);
        at::rand({1});
        return {{"sum", (in[0] * w).sum()}};
      },
  });
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(op.has_output("sum"));
  EXPECT_EQ(op.outputs().at("sum").shape, Shape{});
  EXPECT_EQ(graph.variables().at("W").tensor[0].item<float>(), 1);
  EXPECT_EQ(graph.ops().size(), 1U);
}

TEST(GraphTest, DefineWorksWhereGradientsAreSwitchedOff) {
  Graph graph;
  at::NoGradGuard no_grad;
  graph.define({.name = "step", .body = [&](const Tensors&) -> NamedTensors {
                  CallScope call(graph);
                  EXPECT_TRUE((get_variable("W", {3}) * 2).requires_grad());
                  return {};
                }});
}

TEST(GraphTest, OpsRunOnTheDeviceOfTheGraphOrOnTheirOwn) {
  Graph graph;
  const auto define_on = [&](std::optional<c10::Device> device) {
    const OpBody body = [](const Tensors& in) -> NamedTensors { return {{"y", in[0] + 1}}; };
    return graph.define({.name = "op", .inputs = {{"x", {2}}}, .body = body, .device = device});
  };
  EXPECT_EQ(define_on({}).device(), c10::Device(at::kCPU));
  EXPECT_EQ(define_on(at::kMeta).device(), c10::Device(at::kMeta));
  EXPECT_EQ(define_on(at::kMeta).device(), c10::Device(at::kMeta));
}

TEST(GraphTest, DeviceThatDoesNotExistThrows) {
  EXPECT_ERROR(Graph({.device = c10::Device("cuda:99")}), "[device] 'cuda:99' cannot be used: ");
  Graph graph;
  EXPECT_ERROR(graph.define({.name = "op",
                             .body = [](const Tensors&) { return NamedTensors(); },
                             .device = c10::Device("cuda:99")}),
               "'cuda:99' cannot be used: ");
}

TEST(GraphTest, ChannelsLastChangesTheMemoryFormatAlone) {
  Graph plain({.seed = 1, .channels_last = false});
  Graph graph({.seed = 1});
  auto weight = [](Graph& where) {
    CallScope call(where);
    return get_variable("W", {4, 3, 2, 2}, {.init = init::normal(1), .channels_last = true});
  };
  const at::Tensor expected = weight(plain);
  const at::Tensor w = weight(graph);
  EXPECT_TRUE(expected.is_contiguous());
  EXPECT_TRUE(w.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(w.is_leaf());
  EXPECT_TRUE(at::equal(w, expected));
}

TEST(GraphTest, AModelThatNeedsContiguousTensorsGetsThem) {
  Graph graph({.seed = 1});
  at::Tensor first_value;
  graph.define({.name = "step",
                .inputs = {{"x", {2, 3, 5, 5}}},
                .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
                  CallScope call(graph);
                  const at::Tensor w = get_variable(
                      "W", {4, 3, 2, 2}, {.init = init::normal(1), .channels_last = true});
                  first_value = w.detach().clone();
                  at::NoGradGuard no_grad;
                  const at::Tensor y = at::conv2d(in[0], w).view({2, -1});
                  at::Tensor(w).zero_();
                  return {{"y", y}};
                }});
  const Variable& w = graph.variables().at("W");
  EXPECT_TRUE(w.tensor.is_contiguous());
  EXPECT_TRUE(w.tensor.requires_grad());
  EXPECT_TRUE(at::equal(w.tensor, first_value));
  EXPECT_GT(w.tensor.abs().sum().item<double>(), 0);
}

TEST(GraphTest, AProgramsVariablesStayWhereTheyAre) {
  Graph graph;
  graph.lock_layout();
  EXPECT_THAT(
      [&] {
        graph.define(
            {.name = "step",
             .inputs = {{"x", {2, 3, 5, 5}}},
             .body = [&](const std::vector<at::Tensor>& in) -> NamedTensors {
               CallScope call(graph);
               const at::Tensor w = get_variable("W", {4, 3, 2, 2}, {.channels_last = true});
               return {{"y", at::conv2d(in[0], w).view({2, -1})}};
             }});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("view size is not compatible")));
}

TEST(GraphTest, TrialShapeIsUsed) {
  Graph graph;
  graph.define({.name = "step",
                .inputs = {{"x", {-1, -1}, at::kFloat, {5, 7}}},
                .body = [&](const Tensors& in) -> NamedTensors {
                  EXPECT_EQ(in[0].sizes(), (at::IntArrayRef{5, 7}));
                  return {};
                }});
}

TEST(GraphTest, DefineErrorsNameTheOp) {
  Graph graph;
  EXPECT_ERROR(graph.define({.name = "step"}), "op 'step' has no body");
  EXPECT_ERROR(graph.define({.name = "step",
                             .inputs = {{"x", {-1, 3}}},
                             .body = [](const Tensors& in) -> NamedTensors {
                               return {{"y", at::mm(in[0], in[0])}};
                             }}),
               "[define 'step'] mat1 and mat2 shapes cannot be multiplied");
  EXPECT_TRUE(graph.ops().empty());
}

TEST(GraphTest, DefineChecksTheSignature) {
  Graph graph;
  const OpBody body = [](const Tensors&) -> NamedTensors { return {}; };
  EXPECT_ERROR(graph.define({.name = "s", .inputs = {{"", {1}}}, .body = body}), "has no name");
  EXPECT_ERROR(graph.define({.name = "s", .inputs = {{"a:0", {1}}}, .body = body}), "'a:0'");
  EXPECT_ERROR(graph.define({.name = "s", .inputs = {{"a", {1}}, {"a", {1}}}, .body = body}),
               "two inputs are called 'a'");
  EXPECT_ERROR(graph.define({.name = "s", .inputs = {{"a", {-2}}}, .body = body}),
               "has a dimension of -2");
  EXPECT_ERROR(
      graph.define({.name = "s", .inputs = {{"a", {-1}, at::kFloat, {1, 2}}}, .body = body}),
      "trial_shape of 'a' has 2 dimensions");
}

TEST(GraphTest, DefineInAFinalGraphThrows) {
  Graph graph;
  graph.finalize();
  EXPECT_ERROR(
      graph.define({.name = "late", .body = [](const Tensors&) -> NamedTensors { return {}; }}),
      "op 'late' is defined after the graph was made final");
}

TEST(GraphTest, AfterAFailedDefineTheThreadCanDefineAgain) {
  Graph graph;
  const auto failing = [&](const Tensors&) -> NamedTensors {
    CallScope call(graph);
    VariableScope scope("a");
    get_variable("W", {2});
    throw std::runtime_error("broken");
  };
  EXPECT_ERROR(graph.define({.name = "bad", .body = failing}), "broken");
  EXPECT_EQ(VariableScope::current_path(), "");
  graph.define({.name = "good", .body = [&](const Tensors&) -> NamedTensors {
                  CallScope call(graph);
                  return {{"W", get_variable("W", {2})}};
                }});
}

TEST(OpTest, GroupsShowTheOutputsOfTheirMembers) {
  Graph graph;
  const Op op = graph.define({.name = "a", .body = [](const Tensors&) -> NamedTensors {
                                return {{"x", at::ones({2})}};
                              }});
  const Op group = Op::group("both", {op, Op::nothing()});
  EXPECT_TRUE(group.has_output("x"));
  EXPECT_ERROR(Op::group("g", {Op()}), "a member of 'g' is empty");
  EXPECT_ERROR(Op::host("h", nullptr), "op 'h' has no function");
}

TEST(TensorSpecTest, CheckNamesTheInput) {
  const TensorSpec spec{"image", {-1, 28, 28}};
  spec.check(at::zeros({5, 28, 28}));
  EXPECT_ERROR(spec.check(at::zeros({5, 28, 27})),
               "'image' must have shape [-1, 28, 28], got [5, 28, 27]");
  EXPECT_ERROR(spec.check(at::zeros({5, 28, 28}, at::kDouble)),
               "'image' must be of type Float, got Double");
  EXPECT_ERROR(spec.check(at::Tensor()), "'image' was given an undefined tensor");
}

}  // namespace
}  // namespace tensorpack
