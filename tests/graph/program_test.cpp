// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/program.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

const Tensors kRows{at::arange(12).reshape({3, 4}).to(at::kFloat)};

TEST(ProgramTest, InputsAreReleasedAfterTheRun) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp()}};
  });
  Program program(trace, {"y"});
  at::Tensor input = kRows[0].clone();
  program.run({input});
  EXPECT_EQ(input.use_count(), 1U);
}

TEST(ProgramTest, UnusedInputsAreReleasedToo) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors&) -> NamedTensors {
    return {{"y", at::ones({2})}};
  });
  Program program(trace, {"y"});
  at::Tensor input = kRows[0].clone();
  program.run({input});
  EXPECT_EQ(input.use_count(), 1U);
}

TEST(ProgramTest, LargeResultsBelongToTheCaller) {
  const Trace trace = trace_of({at::ones({1 << 18})}, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp()}};
  });
  Program program(trace, {"y"});
  const at::Tensor first = program.run({at::ones({1 << 18})})[0];
  EXPECT_EQ(first.use_count(), 1U);
  EXPECT_EQ(first.storage().use_count(), 1U);
}

TEST(ProgramTest, SmallResultsAreWrittenIntoKeptBuffers) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp()}};
  });
  Program keeping(trace, {"y"});
  EXPECT_EQ(keeping.run(kRows)[0].data_ptr(), keeping.run(kRows)[0].data_ptr());
  Program plain(trace, {"y"}, {.largest_kept_buffer = 0});
  const at::Tensor first = plain.run(kRows)[0];
  EXPECT_NE(first.data_ptr(), plain.run(kRows)[0].data_ptr());
}

TEST(ProgramTest, KeptBuffersStayWithinTheirBudget) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors& in) -> NamedTensors {
    return {{"a", in[0].exp()}, {"b", in[0].sin()}};
  });
  Program program(trace, {"a", "b"}, {.kept_buffers_budget = 12 * sizeof(float)});
  const Tensors first = program.run(kRows);
  const Tensors second = program.run(kRows);
  EXPECT_EQ(first[0].data_ptr(), second[0].data_ptr());
  EXPECT_NE(first[1].data_ptr(), second[1].data_ptr());
}

TEST(ProgramTest, AKeptBufferThatIsWrittenInPlaceStartsAfresh) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    auto y = in[0].exp();
    y.mul_(2);
    y.t().add_(1);
    return {{"y", y}};
  };
  Program program(trace_of(kRows, {}, function), {"y"});
  program.run(kRows);
  EXPECT_TRUE(at::equal(program.run(kRows)[0], kRows[0].exp() * 2 + 1));
}

TEST(ProgramTest, OtherStridesAreBroughtToTheRecordedLayout) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].view({12}) * 2}};
  });
  Program program(trace, {"y"});
  const at::Tensor strided = kRows[0].t().contiguous().t();
  EXPECT_TRUE(at::equal(program.run({strided})[0], kRows[0].view({12}) * 2));
}

TEST(ProgramTest, MetadataChangesDoNotTouchTheOriginal) {
  const at::Tensor w = at::arange(6).reshape({2, 3}).to(at::kFloat);
  const auto function = [&](const Tensors& in) -> NamedTensors {
    auto copy = w * 1;
    copy.t_();
    return {{"y", copy}, {"z", in[0].t_()}};
  };
  Program program(trace_of(kRows, {w}, function), {"y", "z"});
  at::Tensor input = kRows[0].clone();
  for (int i = 0; i < 2; ++i) {
    const Tensors values = program.run({input});
    EXPECT_TRUE(at::equal(values[0], w.t()));
    EXPECT_EQ(values[1].sizes(), (at::IntArrayRef{4, 3}));
    EXPECT_EQ(input.sizes(), (at::IntArrayRef{3, 4}));
  }
}

TEST(ProgramTest, ListsOptionalListsAndUndefinedTensors) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors& in) -> NamedTensors {
    c10::List<c10::optional<at::Tensor>> where;
    where.push_back(c10::nullopt);
    where.push_back(at::arange(2));
    auto parts = in[0].split(1);
    return {{"a", at::cat({parts[2], parts[0], parts[0]})},
            {"b", at::conv1d(in[0].unsqueeze(1), at::ones({1, 1, 2}), /*bias=*/{})},
            {"c", at::index(in[0], where)}};
  });
  Program program(trace, {"a", "b", "c"});
  for (int i = 0; i < 2; ++i) {
    const at::Tensor x = kRows[0] + i;
    const Tensors values = program.run({x});
    EXPECT_TRUE(at::equal(values[0], at::cat({x[2], x[0], x[0]}).view({3, 4})));
    EXPECT_TRUE(at::equal(values[1], at::conv1d(x.unsqueeze(1), at::ones({1, 1, 2}))));
    EXPECT_TRUE(at::equal(values[2], x.narrow(1, 0, 2)));
  }
}

TEST(ProgramTest, ARunThatThrowsCanBeRepeated) {
  const auto function = [](const Tensors& in) -> NamedTensors {
    return {{"y", at::embedding(at::eye(3), in[0]) * 2}};
  };
  const Tensors good{at::zeros({2}, at::kLong)};
  Program program(trace_of(good, {}, function), {"y"});
  EXPECT_ANY_THROW(program.run({at::full({2}, 7, at::kLong)}));
  EXPECT_TRUE(at::equal(program.run(good)[0], function(good).at("y")));
}

TEST(ProgramTest, GradModeOfTheCallerIsPutBack) {
  const Trace trace = trace_of(kRows, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp()}};
  });
  Program program(trace, {"y"});
  program.run(kRows);
  EXPECT_TRUE(at::GradMode::is_enabled());
  at::NoGradGuard no_grad;
  program.run(kRows);
  EXPECT_FALSE(at::GradMode::is_enabled());
}

}  // namespace
}  // namespace tensorpack
