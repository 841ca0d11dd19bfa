// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/recorder.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/find_operator.h"
#include "tests/graph/tracing.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::ElementsAre;

// An operator that writes although its schema does not say so.
at::Tensor sneaky_add(const at::Tensor& x) {
  at::Tensor(x).add_(1);
  return x.clone();
}

TORCH_LIBRARY(tensorpack_test, library) {
  library.def("sneaky_add(Tensor x) -> Tensor");
  library.impl("sneaky_add", c10::DispatchKey::CPU, TORCH_FN(sneaky_add));
}

TEST(RecorderTest, CompositeOperatorsAreDecomposed) {
  const Trace trace = trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", at::linear(in[0], at::ones({4, 3}), at::ones({4}))}};
  });
  EXPECT_THAT(operators(trace), Contains("aten::addmm"));
}

// Tensors are told apart without a look at what they hold, which may be nothing.
TEST(RecorderTest, AnUndefinedArgumentIsNoTensor) {
  const c10::IValue undefined{at::Tensor()};
  EXPECT_TRUE(is_same_literal(undefined, at::Tensor()));
  EXPECT_FALSE(is_same_literal(undefined, at::ones({2}, at::kMeta)));
  EXPECT_FALSE(is_same_literal(at::ones({2}, at::kMeta), undefined));
}

TEST(RecorderTest, TheBackwardPassIsRecorded) {
  const at::Tensor w = at::ones({3, 4}).set_requires_grad(true);
  const Trace trace = trace_of(kOnes, {w}, [&](const Tensors& in) -> NamedTensors {
    return {{"g", torch::autograd::grad({at::mm(in[0], w).exp().sum()}, {w})[0]}};
  });
  EXPECT_THAT(operators(trace), Contains("aten::mm").Times(2));
}

TEST(RecorderTest, OperatorsThatDoNothingLeaveNoNode) {
  const Trace trace = trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].detach().expand({2, 3}).contiguous()}};
  });
  EXPECT_TRUE(trace.nodes.empty());
  EXPECT_EQ(trace.outputs.at("y"), trace.inputs[0]);
}

TEST(RecorderTest, ValuesCarryKindNameAndGeometry) {
  const at::Tensor w = at::ones({3});
  const Trace trace = trace_of(kOnes, {w}, [&](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] * w}};
  });
  EXPECT_EQ(trace.values[0].kind, ValueKind::kInput);
  EXPECT_EQ(trace.values[0].name, "in0");
  EXPECT_EQ(trace.values[1].kind, ValueKind::kVariable);
  EXPECT_EQ(trace.values[1].name, "var0");
  const Value& result = trace.values[trace.outputs.at("y")];
  EXPECT_EQ(result.kind, ValueKind::kComputed);
  EXPECT_THAT(result.sizes, ElementsAre(2, 3));
  EXPECT_EQ(result.storage_bytes, 24);
}

TEST(RecorderTest, NodesCarryTheScope) {
  const Trace trace = trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors {
    VariableScope outer("gen");
    VariableScope inner("fc0");
    return {{"y", in[0].exp()}};
  });
  EXPECT_EQ(trace.nodes[0].scope, "gen/fc0");
}

TEST(RecorderTest, InPlaceResultsAreTheValueTheyWrite) {
  const Trace trace = trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors {
    auto y = in[0].exp();
    return {{"y", y.add_(1)}};
  });
  EXPECT_EQ(trace.nodes[1].results[0].ids, trace.nodes[0].results[0].ids);
  EXPECT_THAT(trace.nodes[1].writes, ElementsAre(trace.values[trace.outputs.at("y")].storage));
}

TEST(RecorderTest, ViewsShareTheStorageOfTheirBase) {
  const Trace trace = trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].t()}, {"z", in[0].exp()}};
  });
  EXPECT_TRUE(trace.nodes[0].is_view);
  EXPECT_FALSE(trace.nodes[1].is_view);
  EXPECT_EQ(trace.values[trace.outputs.at("y")].storage, trace.values[0].storage);
  EXPECT_NE(trace.values[trace.outputs.at("z")].storage, trace.values[0].storage);
}

TEST(RecorderTest, CapturedTensorsAndGeneratorsArePutBack) {
  const at::Tensor captured = at::zeros({4});
  at::Generator own = at::detail::createCPUGenerator(3);
  const at::Tensor state = own.get_state();
  RecordOptions options;
  options.function = [&]() -> NamedTensors {
    captured.narrow(0, 1, 2).add_(1);
    captured.add_(1);
    return {{"r", at::rand({2}, own)}};
  };
  const Recording recording = record(options);
  EXPECT_TRUE(at::equal(captured, at::zeros({4})));
  EXPECT_TRUE(at::equal(own.get_state(), state));
  captured.fill_(5);
  recording.foreign.restore();
  EXPECT_TRUE(at::equal(captured, at::zeros({4})));
}

TEST(RecorderTest, CapturedTensorsArePutBackAfterAnError) {
  const at::Tensor captured = at::zeros({4});
  EXPECT_ERROR(trace_of(kOnes, {},
                        [&](const Tensors& in) -> NamedTensors {
                          captured.add_(1);
                          in[0].sum().item<float>();
                          return {};
                        }),
               "aten::_local_scalar_dense");
  EXPECT_TRUE(at::equal(captured, at::zeros({4})));
  trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors { return {{"y", in[0].exp()}}; });
}

TEST(RecorderTest, RefusalsNameOperatorAndScope) {
  EXPECT_ERROR(trace_of(kOnes, {},
                        [](const Tensors& in) -> NamedTensors {
                          VariableScope scope("head");
                          return {{"y", in[0].nonzero()}};
                        }),
               "[record] aten::nonzero in scope 'head' makes a tensor whose shape depends on the "
               "data");
}

TEST(RecorderTest, UndeclaredWritesAreFoundInDebugMode) {
  RecordOptions options{.inputs = {at::ones({2})}, .input_names = {"x"}};
  options.check_undeclared_writes = true;
  options.function = [&]() -> NamedTensors {
    static const auto op =
        find_operator<at::Tensor(const at::Tensor&)>("tensorpack_test::sneaky_add");
    return {{"y", op.call(options.inputs[0])}};
  };
  EXPECT_THAT(record(options).remarks, Contains("undeclared write by tensorpack_test::sneaky_add"));
}

TEST(RecorderTest, ResultsAreKeptOnRequest) {
  RecordOptions options{.inputs = {at::ones({2})}, .input_names = {"x"}, .keep_results = true};
  options.function = [&]() -> NamedTensors {
    auto y = options.inputs[0] * 2;
    y.add_(1);
    return {{"y", y}};
  };
  const Recording recording = record(options);
  ASSERT_EQ(recording.results.size(), 2U);
  EXPECT_EQ(recording.results[0][0][0].item<float>(), 2);
  EXPECT_EQ(recording.results[1][0][0].item<float>(), 3);
}

TEST(RecorderTest, NothingIsRecordedOutside) {
  const Trace trace = trace_of(kOnes, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp()}};
  });
  at::ones({2}).exp();
  EXPECT_EQ(trace.nodes.size(), 1U);
}

}  // namespace
}  // namespace tensorpack
