// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tensorpack/cuda/kernels/cast.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/kernel_expectations.h"

namespace tensorpack::cuda {
namespace {

// All numbers of 16 bits; floats with every third upper half, and the lower halves around which
// rounding to 16 bits changes.
at::Tensor all_kinds_of_numbers(c10::ScalarType type) {
  constexpr int64_t kHalves = int64_t{1} << 16;
  if (c10::elementSize(type) == 2) return at::arange(kHalves).to(at::kShort).view(type);
  const at::Tensor upper = at::arange(0, kHalves, 3, at::kLong).bitwise_left_shift(16);
  const at::Tensor lower =
      at::tensor(std::vector<int64_t>{0, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff});
  return (upper.unsqueeze(1) + lower).flatten().to(at::kInt).view(type);
}

void expect_same_casts(const CastArguments& of, const Launcher& launcher) {
  ASSERT_TRUE(fits_cast(of));
  const std::vector<at::Tensor> results = cast(of, launcher);
  const std::vector<at::Tensor> expected = cast_unfused(of);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    SCOPED_TRACE(c10::str(i, ": ", expected[i].sizes()));
    ASSERT_EQ(results[i].sizes(), expected[i].sizes());
    EXPECT_EQ(results[i].strides(), expected[i].strides());
    EXPECT_EQ(results[i].scalar_type(), of.type);
    const at::Tensor is_number = expected[i].isnan().logical_not();
    EXPECT_TRUE(at::equal(results[i].isnan().logical_not(), is_number));
    EXPECT_TRUE(at::equal(bits_of(results[i]).masked_select(is_number),
                          bits_of(expected[i]).masked_select(is_number)));
  }
}

}  // namespace

void expect_cast_as_unfused(c10::ScalarType from, c10::ScalarType to, const Launcher& launcher,
                            c10::Device device) {
  at::manual_seed(12);
  const auto draw = [&](at::IntArrayRef sizes) { return at::randn(sizes).to(from).to(device); };
  CastArguments all{
      .tensors = {all_kinds_of_numbers(from).to(device),
                  draw({2, 5, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast), draw({7, 31}).t(),
                  draw({}), draw({3, 0, 2}), draw({1030}).narrow(0, 1, 1029)},  // not aligned
      .type = to};
  for (int64_t length : {1023, 1024, 1025, 2048, 5000}) all.tensors.push_back(draw({length}));
  for (int64_t i = 0; i < 150; ++i) all.tensors.push_back(draw({i % 37}));
  expect_same_casts(all, launcher);

  const CastArguments together{.tensors = {draw({3, 5}), draw({1, 5}), draw({0, 5}), draw({4, 7}),
                                           draw({1025}), draw({7}), draw({2048})},
                               .type = to,
                               .parts = {3, 1, 3}};
  expect_same_casts(together, launcher);
  const auto& t = together.tensors;
  const std::vector<at::Tensor> results = cast(together, launcher);
  ASSERT_EQ(results.size(), 3U);
  EXPECT_TRUE(at::equal(results[0], at::cat({t[0], t[1], t[2]}).to(to)));
  EXPECT_TRUE(at::equal(results[1], t[3].to(to)));
  EXPECT_TRUE(at::equal(results[2], at::cat({t[4], t[5], t[6]}).to(to)));
}

void expect_large_cast_as_unfused(c10::ScalarType from, c10::ScalarType to,
                                  const Launcher& launcher, c10::Device device) {
  at::manual_seed(13);
  const at::Tensor large = at::randn({(int64_t{1} << 22) + 11}).to(from).to(device);
  expect_same_casts(
      {.tensors = {large, large.narrow(0, 3, 5000), large.narrow(0, 0, 4095)}, .type = to},
      launcher);
}

}  // namespace tensorpack::cuda
