// SPDX-License-Identifier: Apache-2.0
// Statistics that grow as values come in.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace tensorpack {

/// The value in the middle, and of two the larger. Throws Error if there is none.
double median(std::vector<double> values);

/// Count, sum, average and extremes of the values fed.
class StatCounter {
 public:
  void feed(double value);

  /// Forgets all values.
  void reset() { *this = StatCounter(); }

  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }

  /// These three throw Error before the first value.
  double average() const;
  double max() const;
  double min() const;

 private:
  void check_fed() const;

  std::int64_t count_ = 0;
  double sum_ = 0;
  double max_ = -std::numeric_limits<double>::infinity();
  double min_ = std::numeric_limits<double>::infinity();
};

/// The ratio of two counts; 0 when nothing was fed.
class RatioCounter {
 public:
  /// Adds `count` hits out of `total`.
  void feed(std::int64_t count, std::int64_t total = 1);

  void reset() { *this = RatioCounter(); }

  double ratio() const;
  std::int64_t count() const { return count_; }
  std::int64_t total() const { return total_; }

 private:
  std::int64_t count_ = 0;
  std::int64_t total_ = 0;
};

/// A RatioCounter under the names of classification.
class Accuracy : public RatioCounter {
 public:
  double accuracy() const { return ratio(); }
};

/// Precision and recall of a binary classifier. A ratio of nothing is 0.
class BinaryStatistics {
 public:
  void feed(bool prediction, bool label);

  /// Feeds whole batches of zeros and ones; throws Error on other values or different lengths.
  void feed(std::span<const std::int64_t> predictions, std::span<const std::int64_t> labels);

  void reset() { *this = BinaryStatistics(); }

  /// Of those predicted positive, how many are.
  double precision() const;

  /// Of those that are positive, how many were predicted so.
  double recall() const;

  /// One minus the precision.
  double false_positive() const;

  /// One minus the recall.
  double false_negative() const;

 private:
  std::int64_t positives_ = 0;
  std::int64_t predicted_positives_ = 0;
  std::int64_t true_positives_ = 0;
};

/// Mean and variance in one pass, exact for long streams (Welford's method).
class OnlineMoments {
 public:
  void feed(double value);

  void reset() { *this = OnlineMoments(); }

  std::int64_t count() const { return count_; }
  double mean() const { return mean_; }

  /// The sample variance, divided by n - 1; 0 with fewer than two values.
  double variance() const;

  /// The square root of the variance.
  double std() const;

 private:
  std::int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // the sum of squared distances from the mean
};

}  // namespace tensorpack
