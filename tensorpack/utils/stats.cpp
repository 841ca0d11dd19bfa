// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/stats.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

double median(std::vector<double> values) {
  TP_CHECK(!values.empty(), "median", "there is no value. Pass at least one.");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

double ratio_of(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

void StatCounter::feed(double value) {
  ++count_;
  sum_ += value;
  max_ = std::max(max_, value);
  min_ = std::min(min_, value);
}

void StatCounter::check_fed() const {
  TP_CHECK(count_ > 0, "StatCounter", "no value was fed yet. Call feed() first.");
}

double StatCounter::average() const {
  check_fed();
  return sum_ / static_cast<double>(count_);
}

double StatCounter::max() const {
  check_fed();
  return max_;
}

double StatCounter::min() const {
  check_fed();
  return min_;
}

void RatioCounter::feed(std::int64_t count, std::int64_t total) {
  count_ += count;
  total_ += total;
}

double RatioCounter::ratio() const { return ratio_of(count_, total_); }

void BinaryStatistics::feed(bool prediction, bool label) {
  positives_ += label;
  predicted_positives_ += prediction;
  true_positives_ += label && prediction;
}

void BinaryStatistics::feed(std::span<const std::int64_t> predictions,
                            std::span<const std::int64_t> labels) {
  TP_CHECK(predictions.size() == labels.size(), "BinaryStatistics",
           "{} for {}. Feed one prediction per label.",
           counted(std::ssize(predictions), "prediction"), counted(std::ssize(labels), "label"));
  const auto check_binary = [](std::int64_t value) {
    TP_CHECK(value == 0 || value == 1, "BinaryStatistics",
             "predictions and labels must be 0 or 1, got {}. Threshold them first.", value);
  };
  std::for_each(predictions.begin(), predictions.end(), check_binary);
  std::for_each(labels.begin(), labels.end(), check_binary);
  for (std::size_t i = 0; i < labels.size(); ++i) feed(predictions[i] == 1, labels[i] == 1);
}

double BinaryStatistics::precision() const {
  return ratio_of(true_positives_, predicted_positives_);
}

double BinaryStatistics::recall() const { return ratio_of(true_positives_, positives_); }

double BinaryStatistics::false_positive() const {
  return ratio_of(predicted_positives_ - true_positives_, predicted_positives_);
}

double BinaryStatistics::false_negative() const {
  return ratio_of(positives_ - true_positives_, positives_);
}

void OnlineMoments::feed(double value) {
  ++count_;
  const double delta = value - mean_;
  mean_ += delta / static_cast<double>(count_);
  squares_ += delta * (value - mean_);
}

double OnlineMoments::variance() const {
  return count_ < 2 ? 0 : squares_ / static_cast<double>(count_ - 1);
}

double OnlineMoments::std() const { return std::sqrt(variance()); }

}  // namespace tensorpack
