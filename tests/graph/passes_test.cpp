// SPDX-License-Identifier: Apache-2.0
// Each pass alone, on small traces.
#include "tensorpack/graph/passes/passes.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>

#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;
using testing::UnorderedElementsAre;

// ---- captured tensors

// The constants of a trace that vary.
size_t varying(const Trace& trace) {
  return static_cast<size_t>(std::count_if(trace.values.begin(), trace.values.end(),
                                           [](const Value& value) { return value.varies; }));
}

TEST(CapturedTensorTest, WhatTheFunctionOwnsVariesAndNothingOfItIsFolded) {
  const at::Tensor k = at::ones({3});
  Trace trace = trace_of(kInput, {}, [k](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] * (k + 1).exp()}};
  });
  EXPECT_EQ(varying(trace), 1U);
  optimize(trace, {"y"});
  EXPECT_THAT(operators(trace), ElementsAre("aten::add.Scalar", "aten::exp", "aten::mul.Tensor"));
  k.fill_(2);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0] * (k + 1).exp()));
}

TEST(CapturedTensorTest, ViewsOfItAreMadeOnceAndVary) {
  const at::Tensor k = at::ones({3, 2});
  Trace trace = trace_of(kInput, {}, [k](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] + k.t()}};
  });
  optimize(trace, {"y"});
  EXPECT_THAT(operators(trace), ElementsAre("aten::add.Tensor"));
  EXPECT_EQ(varying(trace), 2U);
  k.fill_(5);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0] + 5));
}

TEST(CapturedTensorTest, ATensorWhoseMemorySomebodyOwnsIsCaptured) {
  const at::Tensor k = at::ones({3});
  Trace trace = trace_of(kInput, {}, [k](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] * (k.variable_data() + 1)}};  // another tensor, made behind the dispatcher
  });
  optimize(trace, {"y"});
  k.fill_(2);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0] * 3));
}

TEST(CapturedTensorTest, WhatTheFunctionMakesOnTheHostIsFolded) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor filled = at::tensor({1.0F, 2.0F, 3.0F});
    std::vector<float> gone = {4, 5, 6};
    return {{"y", in[0] * (filled + at::from_blob(gone.data(), {3})).exp() * 2.5}};
  });
  EXPECT_EQ(varying(trace), 0U);
  optimize(trace, {"y"});
  EXPECT_THAT(operators(trace), ElementsAre("aten::mul.Tensor", "aten::mul.Scalar"));
  const at::Tensor sum = at::tensor({5.0F, 7.0F, 9.0F});
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0] * sum.exp() * 2.5));
}

TEST(CapturedTensorTest, TheTraceDoesNotKeepItAlive) {
  at::Tensor k = at::ones({3});
  RecordOptions options;
  options.function = [&]() -> NamedTensors { return {{"y", k * 2}}; };
  const Recording recording = record(options);
  ASSERT_EQ(recording.captured.size(), 1U);
  EXPECT_FALSE(recording.captured[0].has_changed());
  k = at::zeros({3});
  EXPECT_TRUE(recording.captured[0].has_changed());
}

// ---- dead code

TEST(DeadCodeTest, DropsWhatNoFetchNeeds) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    return {{"a", in[0].exp()}, {"b", in[0].sin().cos()}};
  });
  eliminate_dead_code(trace, {"a"});
  EXPECT_THAT(operators(trace), ElementsAre("aten::exp"));
  EXPECT_FALSE(trace.outputs.contains("b"));
}

TEST(DeadCodeTest, KeepsWritesToVariables) {
  const at::Tensor w = at::zeros({3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors& in) -> NamedTensors {
    w.add_(in[0].sum(0));
    return {{"unused", in[0].exp()}};
  });
  eliminate_dead_code(trace, {});
  EXPECT_THAT(operators(trace), ElementsAre("aten::sum.dim_IntList", "aten::add_.Tensor"));
}

TEST(DeadCodeTest, KeepsWritesToVariablesThroughViews) {
  const at::Tensor w = at::zeros({3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors& in) -> NamedTensors {
    w.narrow(0, 0, 1).add_(in[0].sum());
    return {};
  });
  eliminate_dead_code(trace, {});
  EXPECT_THAT(operators(trace), Contains("aten::add_.Tensor"));
  EXPECT_THAT(operators(trace), Contains("aten::slice.Tensor"));
}

TEST(DeadCodeTest, KeepsWritesToCapturedTensors) {
  const at::Tensor captured = at::zeros({3});
  Trace trace = trace_of(kInput, {}, [&](const Tensors& in) -> NamedTensors {
    captured.add_(in[0].sum(0));
    return {};
  });
  eliminate_dead_code(trace, {});
  EXPECT_THAT(operators(trace), Contains("aten::add_.Tensor"));
}

TEST(DeadCodeTest, KeepsRandomDraws) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    at::rand({2});
    at::empty({2}).normal_();
    return {{"a", in[0].exp()}};
  });
  eliminate_dead_code(trace, {"a"});
  EXPECT_THAT(operators(trace),
              ElementsAre("aten::rand", "aten::empty.memory_format", "aten::normal_", "aten::exp"));
}

TEST(DeadCodeTest, KeepsWritesThatAreReadLater) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    auto y = in[0].exp();
    y.narrow(0, 0, 1).mul_(2);
    return {{"y", y}};
  });
  eliminate_dead_code(trace, {"y"});
  EXPECT_EQ(operators(trace).size(), 3U);
}

TEST(DeadCodeTest, DropsWritesNobodyReads) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    auto y = in[0].exp();
    y.mul_(2);
    return {{"a", in[0].sin()}};
  });
  eliminate_dead_code(trace, {"a"});
  EXPECT_THAT(operators(trace), ElementsAre("aten::sin"));
}

// ---- views

TEST(FoldViewsTest, ViewsOfVariablesAreMadeOnce) {
  const at::Tensor w = at::arange(6).reshape({3, 2}).to(at::kFloat);
  const auto function = [&](const Tensors& in) -> NamedTensors {
    return {{"y", at::mm(in[0], w.t().narrow(0, 0, 2).t())}};
  };
  Trace trace = trace_of(kInput, {w}, function);
  fold_views(trace);
  EXPECT_THAT(operators(trace), ElementsAre("aten::mm"));
  w.mul_(2);  // the folded view follows
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), function(kInput).at("y")));
}

TEST(FoldViewsTest, ViewsOfComputedValuesStay) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor exp = in[0].exp().t();
    return {{"y", exp + in[0].t()}};
  });
  fold_views(trace);
  EXPECT_THAT(operators(trace),
              UnorderedElementsAre("aten::exp", "aten::t", "aten::t", "aten::add.Tensor"));
}

TEST(FoldViewsTest, WritesThroughAFoldedViewReachTheVariable) {
  const at::Tensor w = at::zeros({3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors& in) -> NamedTensors {
    w.narrow(0, 1, 1).add_(in[0].sum());
    return {};
  });
  fold_views(trace);
  eliminate_dead_code(trace, {});
  EXPECT_THAT(operators(trace), ElementsAre("aten::sum", "aten::add_.Tensor"));
  w.zero_();
  run(trace, kInput);
  EXPECT_TRUE(at::equal(w, at::full({3}, 15.F) * at::arange(3).eq(1)));
}

// ---- constants

TEST(FoldConstantsTest, WhatDependsOnNothingIsComputedOnce) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] + at::arange(3).to(at::kFloat).exp()}};
  });
  fold_constants(trace);
  EXPECT_THAT(operators(trace), ElementsAre("aten::add.Tensor"));
}

TEST(FoldConstantsTest, LikeFactoriesNeedShapesAlone) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    auto y = in[0].exp();
    return {{"y", y + at::ones_like(y) + y.new_zeros({3})}};
  });
  fold_constants(trace);
  EXPECT_THAT(operators(trace), ElementsAre("aten::exp", "aten::add.Tensor", "aten::add.Tensor"));
  EXPECT_TRUE(at::equal(run(trace, {kInput[0] * 2}, "y"), (kInput[0] * 2).exp() + 1));
}

TEST(FoldConstantsTest, VariablesAndRandomNumbersVary) {
  const at::Tensor w = at::ones({3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors&) -> NamedTensors {
    const at::Tensor exp = w.exp();
    return {{"y", exp + at::rand({3})}};
  });
  fold_constants(trace);
  EXPECT_THAT(operators(trace),
              UnorderedElementsAre("aten::exp", "aten::rand", "aten::add.Tensor"));
}

TEST(FoldConstantsTest, AnAccumulatorIsFreshInEveryRun) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    auto sum = at::zeros({3});
    sum.add_(in[0][0]);
    sum.add_(in[0][1]);
    return {{"sum", sum}};
  };
  Trace trace = trace_of(kInput, {}, function);
  fold_constants(trace);
  EXPECT_THAT(operators(trace), Contains("aten::zeros"));
  run(trace, kInput, "sum");
  EXPECT_TRUE(at::equal(run(trace, kInput, "sum"), function(kInput).at("sum")));
}

TEST(FoldConstantsTest, ConstantWritesFoldAndLaterVaryingOnesDoNot) {
  const auto constant = [](const Tensors& in) -> NamedTensors {
    auto table = at::zeros({3});
    table.narrow(0, 1, 1).fill_(5);
    return {{"y", in[0] * table}};
  };
  Trace trace = trace_of(kInput, {}, constant);
  fold_constants(trace);
  EXPECT_THAT(operators(trace), ElementsAre("aten::mul.Tensor"));

  const auto varying = [](const Tensors& in) -> NamedTensors {
    auto table = at::zeros({3});
    auto y = in[0] * table;  // reads zeros ...
    table.fill_(5);          // ... before this write
    return {{"y", y}, {"z", in[0] * table}};
  };
  trace = trace_of(kInput, {}, varying);
  fold_constants(trace);
  run(trace, kInput, "y");
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), kInput[0] * 0));
}

TEST(FoldConstantsTest, LargeResultsAreNotKept) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].sum() + at::zeros({1 << 20})}};
  });
  fold_constants(trace);
  EXPECT_THAT(operators(trace), Contains("aten::zeros"));
}

// ---- common subexpressions

TEST(CommonSubexpressionsTest, EqualNodesAreMerged) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp().sum(0) * in[0].exp().sum(0)}, {"z", in[0].exp()}};
  };
  Trace trace = trace_of(kInput, {}, function);
  merge_common_subexpressions(trace);
  EXPECT_THAT(operators(trace),
              ElementsAre("aten::exp", "aten::sum.dim_IntList", "aten::mul.Tensor"));
  EXPECT_TRUE(at::equal(run(trace, kInput, "z"), kInput[0].exp()));
}

TEST(CommonSubexpressionsTest, DifferentLiteralsAreNot) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].sum(0).sum() + in[0].sum(1).sum() + in[0].clamp_min(1e-12).sum() +
                      in[0].clamp_min(1.0000000000000002e-12).sum()}};
  });
  const size_t before = trace.nodes.size();
  merge_common_subexpressions(trace);
  EXPECT_EQ(trace.nodes.size(), before);
}

TEST(CommonSubexpressionsTest, AWriteBetweenKeepsBoth) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    auto x = in[0] * 1;
    auto before = x.exp();
    x.add_(1);
    return {{"before", before}, {"after", x.exp()}};
  };
  Trace trace = trace_of(kInput, {}, function);
  merge_common_subexpressions(trace);
  EXPECT_TRUE(at::equal(run(trace, kInput, "before"), kInput[0].exp()));
  EXPECT_TRUE(at::equal(run(trace, kInput, "after"), (kInput[0] + 1).exp()));
}

TEST(CommonSubexpressionsTest, AWriteThroughAViewBetweenKeepsBoth) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    auto x = in[0] * 1;
    auto before = x.exp();
    x.narrow(0, 0, 1).add_(1);
    return {{"y", before - x.exp()}};
  };
  Trace trace = trace_of(kInput, {}, function);
  merge_common_subexpressions(trace);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), function(kInput).at("y")));
}

TEST(CommonSubexpressionsTest, RandomNumbersAreNotShared) {
  Trace trace = trace_of(kInput, {}, [](const Tensors&) -> NamedTensors {
    return {{"y", at::rand({3}) - at::rand({3})}};
  });
  merge_common_subexpressions(trace);
  EXPECT_THAT(operators(trace), ElementsAre("aten::rand", "aten::rand", "aten::sub.Tensor"));
}

TEST(CommonSubexpressionsTest, AResultThatIsWrittenLaterIsItsOwn) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    auto a = in[0].exp();
    auto b = in[0].exp();
    b.t().mul_(3);
    return {{"a", a}, {"b", b}};
  };
  Trace trace = trace_of(kInput, {}, function);
  merge_common_subexpressions(trace);
  EXPECT_TRUE(at::equal(run(trace, kInput, "a"), kInput[0].exp()));
  EXPECT_TRUE(at::equal(run(trace, kInput, "b"), kInput[0].exp() * 3));
}

TEST(CommonSubexpressionsTest, EqualViewsOfWrittenMemoryStillAlias) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    auto x = in[0] * 1;
    auto a = x.t();
    auto b = x.view({6});
    b.add_(1);
    return {{"a", a * 1}, {"c", x.t() * 2}};
  };
  Trace trace = trace_of(kInput, {}, function);
  merge_common_subexpressions(trace);
  EXPECT_TRUE(at::equal(run(trace, kInput, "a"), (kInput[0] + 1).t()));
  EXPECT_TRUE(at::equal(run(trace, kInput, "c"), (kInput[0] + 1).t() * 2));
}

TEST(CommonSubexpressionsTest, VariablesReadBeforeAndAfterAnUpdateDiffer) {
  const at::Tensor w = at::ones({3});
  const auto function = [&](const Tensors& in) -> NamedTensors {
    auto before = w.exp();
    w.add_(in[0][0]);
    return {{"y", w.exp() - before}};
  };
  Trace trace = trace_of(kInput, {w}, function);
  merge_common_subexpressions(trace);
  w.fill_(1);
  const at::Tensor got = run(trace, kInput, "y");
  w.fill_(1);
  EXPECT_TRUE(at::equal(got, function(kInput).at("y")));
}

TEST(OptimizeTest, AllPassesTogetherKeepTheNumbers) {
  const at::Tensor w = at::ones({3});
  const auto function = [&](const Tensors& in) -> NamedTensors {
    auto scale = at::arange(3).to(at::kFloat) + 1;
    auto a = (in[0] * scale).sum(0);
    auto b = (in[0] * scale).sum(0);
    w.view({3, 1}).add_(b.view({3, 1}), 0.1);
    return {{"a", a}, {"w", w * 1}, {"dead", in[0].inverse()}};
  };
  const Tensors input{at::eye(3)};
  Trace trace = trace_of(input, {w}, function);
  optimize(trace, {"a", "w"});
  EXPECT_THAT(operators(trace), Not(Contains("aten::arange")));
  w.fill_(1);
  const at::Tensor got = run(trace, input, "w");
  w.fill_(1);
  EXPECT_TRUE(at::equal(got, function(input).at("w")));
}

}  // namespace
}  // namespace tensorpack
