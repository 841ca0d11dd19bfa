// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// How values are distributed. What is not finite is counted apart.
struct Histogram {
  /// In rising order, one more than there are counts.
  std::vector<double> edges = {};
  /// counts[i]: how many values lie between edges[i] and edges[i + 1].
  std::vector<double> counts = {};
  /// Of the finite values: how many, and their extremes (0 if there are none) and sums.
  int64_t count = 0;
  double min = 0;
  double max = 0;
  double sum = 0;
  double sum_of_squares = 0;
  int64_t not_finite = 0;
};

inline constexpr int64_t kDefaultBins = 50;

/// Sorts the values of a tensor into `bins` of equal width between the least and the greatest.
Histogram make_histogram(const at::Tensor& values, int64_t bins = kDefaultBins);

}  // namespace tensorpack
