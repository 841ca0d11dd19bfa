// SPDX-License-Identifier: Apache-2.0
// What the grids of kernel_cases.h have in common.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tensorpack::cuda {

/// Of the largest magnitude: bfloat16 keeps 8 bits, half 11.
inline double tolerance_of(c10::ScalarType type) {
  if (type == c10::kBFloat16) return 1.0 / 128;
  return type == c10::kHalf ? 1.0 / 1024 : 2e-5;
}

/// Against the largest of what is expected.
inline void expect_within(const at::Tensor& expected, const at::Tensor& value, double tolerance,
                          const std::string& what) {
  ASSERT_EQ(expected.sizes(), value.sizes()) << what;
  const at::Tensor e = expected.to(at::kDouble).cpu(), v = value.to(at::kDouble).cpu();
  const double scale = std::max(e.abs().max().item<double>(), 1e-2);
  EXPECT_LE((e - v).abs().max().item<double>(), tolerance * scale) << what;
}

/// What column reductions leave: see make_counters().
inline void expect_zeros(const at::Tensor& counters) {
  EXPECT_EQ(counters.abs().sum().item<int64_t>(), 0) << "counters are not ready for the next one";
}

/// As integers, to compare what is no number, too.
inline at::Tensor bits_of(const at::Tensor& tensor) {
  return tensor.contiguous().view(tensor.element_size() == 2 ? at::kShort : at::kInt);
}

}  // namespace tensorpack::cuda
