// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "tensorpack/cuda/kernels/column_sum.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/kernel_expectations.h"

namespace tensorpack::cuda {

void expect_column_sum_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                  c10::ScalarType of_sums, const Launcher& launcher,
                                  c10::Device device) {
  at::manual_seed(9);
  const at::Tensor x = at::randn(sizes).to(type).to(device);
  const at::Tensor counters = make_counters(device);
  for (const bool keep_rows : {false, true}) {
    const at::Tensor sums = column_sum(x, counters, keep_rows, of_sums, launcher);
    EXPECT_EQ(sums.scalar_type(), of_sums);
    expect_within(column_sum_unfused(x, keep_rows, at::kFloat), sums, tolerance_of(of_sums), "sum");
    expect_zeros(counters);
  }
}

std::vector<ConcatSumCase> concat_sum_cases() {
  using enum ConcatSumCase::Layout;
  return {{{4, 25}, {64, 64, 64}, c10::kBFloat16, c10::kBFloat16},
          {{300}, {24, 8, 40}, c10::kBFloat16, c10::kFloat, kColumns},
          {{2, 3, 7}, {16, 8}, c10::kHalf, c10::kHalf, kOddColumns},
          {{3, 5}, {4, 12, 4}, c10::kFloat, c10::kFloat, kColumns},
          {{77}, {3, 1, 7}, c10::kFloat, c10::kBFloat16},
          {{2, 9}, {12, 20}, c10::kBFloat16, c10::kFloat},
          {{1}, {5, 6}, c10::kHalf, c10::kFloat},
          {{1, 1}, {8, 8}, c10::kBFloat16, c10::kBFloat16, kColumns},
          {{6, 5}, {1}, c10::kFloat, c10::kFloat},
          {{2, 33}, {8, 8, 8, 8, 8, 8, 8, 8}, c10::kBFloat16, c10::kFloat},
          {{3, 11}, {8, 16}, c10::kBFloat16, c10::kFloat, kExpanded}};
}

void expect_concat_sum_as_unfused(const ConcatSumCase& of, const Launcher& launcher,
                                  c10::Device device) {
  using Layout = ConcatSumCase::Layout;
  at::manual_seed(14);
  const auto draw = [&](int64_t columns) {
    std::vector<int64_t> sizes = of.rows;
    sizes.push_back(columns);
    if (of.layout == Layout::kExpanded) {
      return at::randn({columns}).to(of.type).to(device).expand(sizes);
    }
    const int64_t before = of.layout == Layout::kColumns ? 8 : 3;
    if (of.layout != Layout::kDense) sizes.back() += 2 * before;
    const at::Tensor all = at::randn(sizes).to(of.type).to(device);
    return of.layout == Layout::kDense ? all : all.narrow(-1, before, columns);
  };
  std::vector<at::Tensor> parts;
  for (const int64_t columns : of.columns) parts.push_back(draw(columns));
  const at::Tensor counters = make_counters(device);
  for (const bool keep_rows : {false, true}) {
    const auto [all, sums] = concat_sum(parts, counters, keep_rows, of.of_sums, launcher);
    const auto [all0, sums0] = concat_sum_unfused(parts, keep_rows, of.of_sums);
    EXPECT_EQ(all.sizes(), all0.sizes());
    EXPECT_EQ(all.strides(), all0.strides());
    EXPECT_TRUE(at::equal(bits_of(all), bits_of(all0)));
    EXPECT_EQ(sums.scalar_type(), of.of_sums);
    EXPECT_EQ(sums0.scalar_type(), of.of_sums);
    const at::Tensor expected = all0.view({-1, all0.size(-1)}).to(at::kDouble).sum(0, keep_rows);
    expect_within(expected, sums, tolerance_of(of.of_sums), "sums");
    expect_within(expected, sums0, tolerance_of(of.of_sums), "sums by libtorch's");
    expect_zeros(counters);
    const auto again = concat_sum(parts, counters, keep_rows, of.of_sums, launcher);
    EXPECT_TRUE(at::equal(sums, std::get<1>(again))) << "other bits";
  }
  if (of.layout == Layout::kExpanded) return;
  parts[0].select(-1, 0).fill_(std::numeric_limits<float>::quiet_NaN());
  parts.back().select(-1, -1).flatten()[0].fill_(-std::numeric_limits<float>::infinity());
  const auto [all, sums] = concat_sum(parts, counters, false, of.of_sums, launcher);
  EXPECT_TRUE(at::equal(bits_of(all), bits_of(at::cat(parts, -1))));
  EXPECT_TRUE(sums[0].isnan().item<bool>());
  EXPECT_EQ(sums.isfinite().sum().item<int64_t>(), sums.numel() - (sums.numel() > 1 ? 2 : 1));
}

}  // namespace tensorpack::cuda
