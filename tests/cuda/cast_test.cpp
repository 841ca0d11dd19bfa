// SPDX-License-Identifier: Apache-2.0
// Casts by the kernel, compiled by the host's compiler, against libtorch's.
#include "tensorpack/cuda/kernels/cast.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/cuda/kernels/kernel_list.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tests/cuda/host_device.h"
#include "tests/cuda/kernel_cases.h"

namespace tensorpack::cuda {
namespace {

using testing::SizeIs;

TEST(CastKernelTest, GivesLibtorchsBits) {
  const HostLauncher launcher;
  for (const auto from : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto to : {at::kFloat, at::kBFloat16, at::kHalf}) {
      if (from == to) continue;
      SCOPED_TRACE(c10::str(from, " to ", to));
      expect_cast_as_unfused(from, to, launcher, at::kCPU);
    }
  }
}

TEST(CastKernelTest, LargeBlocksGiveLibtorchsBits) {
  expect_large_cast_as_unfused(at::kFloat, at::kBFloat16, HostLauncher(), at::kCPU);
}

TEST(CastKernelTest, ATableHoldsTheWeightsOfALargeNetwork) {
  const auto kernels_for = [](size_t tensors) {
    const KernelList list(132);
    cast({.tensors = std::vector<at::Tensor>(tensors, at::zeros({16})), .type = at::kBFloat16},
         list);
    return list.kernels();
  };
  EXPECT_THAT(kernels_for(144), SizeIs(1));
  EXPECT_THAT(kernels_for(145), SizeIs(2));
}

TEST(CastKernelTest, EmptyTensorsTakeNoKernel) {
  const KernelList list(132);
  const auto results =
      cast({.tensors = {at::zeros({0}), at::zeros({3, 0})}, .type = at::kHalf}, list);
  EXPECT_THAT(list.kernels(), SizeIs(0));
  EXPECT_EQ(results[1].sizes(), at::IntArrayRef({3, 0}));
  EXPECT_EQ(results[1].scalar_type(), at::kHalf);
}

TEST(CastKernelTest, OtherTypesAndGapsDoNotFit) {
  const at::Tensor x = at::zeros({4, 3});
  const auto fits = [](std::vector<at::Tensor> tensors, at::ScalarType type,
                       std::vector<int64_t> parts = {}) {
    return fits_cast({std::move(tensors), type, std::move(parts)});
  };
  EXPECT_TRUE(fits({x, x.t()}, at::kBFloat16));
  EXPECT_TRUE(fits({x, x, x.t()}, at::kBFloat16, {2, 1}));
  EXPECT_FALSE(fits({x, x.to(at::kHalf)}, at::kBFloat16));
  EXPECT_FALSE(fits({x.to(at::kDouble)}, at::kFloat));
  EXPECT_FALSE(fits({x}, at::kInt));
  EXPECT_FALSE(fits({x.narrow(1, 0, 2)}, at::kBFloat16));
  EXPECT_FALSE(fits({x.expand({2, 4, 3})}, at::kBFloat16));
  EXPECT_FALSE(fits({x.t(), x.t()}, at::kBFloat16, {2}));
  EXPECT_FALSE(fits({}, at::kBFloat16));
}

TEST(CastKernelTest, TheOperatorCastsWhatDoesNotFitByLibtorch) {
  const auto op =
      cast_together_operator()
          .typed<std::vector<at::Tensor>(at::TensorList, at::ScalarType, at::IntArrayRef)>();
  const KernelList list(132);
  const at::Tensor x = at::arange(6, at::kLong).reshape({2, 3});
  const auto results = op.call({x.t(), x, x}, at::kFloat, {1, 2});
  EXPECT_THAT(list.kernels(), SizeIs(0));
  EXPECT_TRUE(at::equal(results[0], x.t().to(at::kFloat)));
  EXPECT_TRUE(at::equal(results[1], at::cat({x, x}).to(at::kFloat)));
}

}  // namespace
}  // namespace tensorpack::cuda
