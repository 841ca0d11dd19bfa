// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/compile_ahead.h"

#include <gmock/gmock.h>

#include "tensorpack/cuda/kernels/kernel_list.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::vector<std::string> names_of(const std::vector<KernelSource>& kernels) {
  std::vector<std::string> names;
  for (const KernelSource& kernel : kernels) names.push_back(kernel.name);
  return names;
}

Trace fused_norm(const Norm& norm) {
  Trace trace = trace_of({image()}, norm.variables(), [&](const Tensors& in) -> NamedTensors {
    const at::NoGradGuard no_grad;
    return {{"y", at::relu(norm(in[0])).exp()}};
  });
  cuda::optimize(trace, {"y"}, {.device = at::kCPU});
  return trace;
}

TEST(CompileAheadTest, FindsTheKernelsThatATraceLaunches) {
  const Norm norm;
  const std::vector<KernelSource> kernels = kernels_of(fused_norm(norm), 132);
  EXPECT_THAT(names_of(kernels), ElementsAre("batch_norm_statistics", "batch_norm_apply"));
  EXPECT_THAT(kernels[0].text, testing::HasSubstr("batch_norm_statistics"));
}

TEST(CompileAheadTest, FindsTheKernelsOfTwoNormsThatAreAdded) {
  const Norm a, b;
  Tensors variables = a.variables();
  for (const at::Tensor& variable : b.variables()) variables.push_back(variable);
  Trace trace = trace_of({image()}, variables, [&](const Tensors& in) -> NamedTensors {
    const at::NoGradGuard no_grad;
    return {{"y", at::relu(a(in[0]) + b(in[0]))}};
  });
  cuda::optimize(trace, {"y"}, {.device = at::kCPU});
  EXPECT_THAT(names_of(kernels_of(trace, 132)),
              ElementsAre("batch_norm_statistics", "batch_norm_statistics", "batch_norm_apply"));
}

TEST(CompileAheadTest, FindsTheKernelOfCasts) {
  const at::Tensor a = at::rand({3}), b = at::rand({4});
  Trace trace = trace_of({image()}, {a, b}, [&](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].sum() * a.to(at::kBFloat16).sum() * b.to(at::kBFloat16).sum()}};
  });
  cuda::optimize(trace, {"y"}, {.pointwise = false, .device = at::kCPU});
  EXPECT_THAT(names_of(kernels_of(trace, 132)), ElementsAre("cast"));
}

TEST(CompileAheadTest, FindsTheKernelOfConcatenationsWithTheirSums) {
  const Tensors inputs = {at::rand({512, 96}), at::rand({512, 64})};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor all = at::cat({in[0].sin(), in[1]}, 1);
    return {{"y", at::mm(all.t(), all)}, {"sum", all.sum(0)}};
  });
  cuda::optimize(trace, {"y", "sum"}, {.device = at::kCPU});
  EXPECT_THAT(names_of(kernels_of(trace, 132)), ElementsAre("concat_sum"));
}

TEST(CompileAheadTest, FindsTheKernelsOfGradientsOfWords) {
  const Tensors inputs = {at::rand({40, 64}), at::randint(9, {40}, at::kLong),
                          at::rand({1024, 64})};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", at::embedding_dense_backward(in[0], in[1], 1024, -1, false) + in[2]}};
  });
  cuda::optimize(trace, {"y"}, {.device = at::kCPU});
  EXPECT_THAT(names_of(kernels_of(trace, 132)),
              ElementsAre("embedding_pieces", "embedding_gradient"));
}

TEST(CompileAheadTest, FindsTheKernelsOfLayerNormsBackwardWithSums) {
  const Tensors inputs = {at::rand({6, 8}), at::rand({6, 8}), at::rand({6, 1}), at::rand({6, 1})};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    const auto [dx, dw, db] = at::native_layer_norm_backward(in[0], in[1], {8}, in[2], in[3], {},
                                                             {}, {true, false, false});
    return {{"dx", dx}, {"sum", dx.sum(0)}};
  });
  cuda::optimize(trace, {"dx", "sum"}, {.device = at::kCPU});
  const std::vector<KernelSource> kernels = kernels_of(trace, 132);
  EXPECT_THAT(names_of(kernels), ElementsAre("layer_norm_backward", "layer_norm_finish"));
  EXPECT_THAT(kernels[1].text, testing::HasSubstr("kSum = true"));
}

TEST(CompileAheadTest, RunsNothing) {
  const Norm norm;
  const Trace trace = fused_norm(norm);
  const at::Tensor mean = norm.mean.clone(), variance = norm.variance.clone();
  kernels_of(trace, 132);
  EXPECT_TRUE(at::equal(norm.mean, mean));
  EXPECT_TRUE(at::equal(norm.variance, variance));
  EXPECT_EQ(launcher_for(at::ones({1})), nullptr);
}

TEST(CompileAheadTest, LibtorchsOperatorsHaveNone) {
  const Trace trace = trace_of({image()}, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].exp()}};
  });
  EXPECT_THAT(kernels_of(trace, 132), IsEmpty());
}

}  // namespace
}  // namespace tensorpack::cuda
