// SPDX-License-Identifier: Apache-2.0
// The points of a scalar, as many as can be told apart in a chart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace tensorpack::report {

struct Point {
  int64_t step = 0;
  double seconds = 0;  ///< of training, all of its sessions together
  double value = 0;

  bool operator==(const Point&) const = default;
};

/// A scalar over time in bounded memory: of many points, neighbours share a bucket, which keeps the
/// lowest, the highest and the first that is not finite. No peak and no NaN is lost.
class Series {
 public:
  static constexpr size_t kMaxBuckets = 1024;

  Series() = default;
  /// From what points() gave of a series to which `count` points were added.
  Series(const std::vector<Point>& points, int64_t count);

  void add(const Point& point);

  /// What is kept, in order, of at most `max_buckets` buckets; the newest point is always the last.
  std::vector<Point> points(size_t max_buckets = kMaxBuckets) const;
  /// How many points were added.
  int64_t count() const { return count_; }
  bool empty() const { return count_ == 0; }

 private:
  struct Bucket {
    std::optional<Point> low = {};
    std::optional<Point> high = {};
    std::optional<Point> odd = {};
    int64_t count = 0;

    void merge(const Bucket& other);
  };
  static Bucket make_bucket(const Point& point, int64_t count = 1);
  // Makes one bucket of every `size` neighbours.
  static void join(std::vector<Bucket>& buckets, size_t size);

  std::vector<Bucket> buckets_;
  int64_t per_bucket_ = 1;
  int64_t count_ = 0;
  Point newest_;
};

}  // namespace tensorpack::report
