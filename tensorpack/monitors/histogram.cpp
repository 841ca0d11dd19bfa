// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/histogram.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "tensorpack/utils/error.h"

namespace tensorpack {

Histogram make_histogram(const at::Tensor& values, int64_t bins) {
  TP_CHECK(values.defined() && bins > 0, "make_histogram",
           "a tensor and a positive number of bins are needed, got {} bins.", bins);
  at::NoGradGuard no_grad;
  const at::Tensor flat = values.detach().cpu().to(at::kDouble).contiguous();
  const std::span all(flat.data_ptr<double>(), static_cast<size_t>(flat.numel()));
  Histogram histogram;
  for (const double value : all) {
    if (!std::isfinite(value)) {
      ++histogram.not_finite;
      continue;
    }
    const bool is_first = histogram.count++ == 0;
    histogram.min = is_first ? value : std::min(histogram.min, value);
    histogram.max = is_first ? value : std::max(histogram.max, value);
    histogram.sum += value;
    histogram.sum_of_squares += value * value;
  }
  if (histogram.count == 0) return histogram;

  // Equal values are given a bin with some width, or it could not be seen.
  double low = histogram.min;
  double width = histogram.max - histogram.min;
  if (width == 0) {
    bins = 1;
    width = std::max(1.0, std::abs(low) * 1e-6);
    low -= width / 2;
  }
  const double scale = static_cast<double>(bins) / width;
  histogram.counts.assign(static_cast<size_t>(bins), 0);
  for (const double value : all) {
    if (!std::isfinite(value)) continue;
    const auto bin = static_cast<int64_t>((value - low) * scale);
    ++histogram.counts[static_cast<size_t>(std::clamp<int64_t>(bin, 0, bins - 1))];
  }
  for (int64_t i = 0; i <= bins; ++i) {
    histogram.edges.push_back(low + width * static_cast<double>(i) / static_cast<double>(bins));
  }
  return histogram;
}

}  // namespace tensorpack
