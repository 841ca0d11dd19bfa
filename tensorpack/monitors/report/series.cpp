// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report/series.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace tensorpack::report {

Series::Series(const std::vector<Point>& points, int64_t count)
    : count_(std::max(count, static_cast<int64_t>(points.size()))) {
  if (points.empty()) return;
  per_bucket_ = std::max<int64_t>(1, count_ / static_cast<int64_t>(points.size()));
  for (const Point& point : points) buckets_.push_back(make_bucket(point, per_bucket_));
  for (; buckets_.size() > kMaxBuckets; per_bucket_ *= 2) join(buckets_, 2);
  newest_ = points.back();
}

void Series::add(const Point& point) {
  ++count_;
  newest_ = point;
  if (!buckets_.empty() && buckets_.back().count < per_bucket_) {
    buckets_.back().merge(make_bucket(point));
    return;
  }
  if (buckets_.size() == kMaxBuckets) {
    join(buckets_, 2);
    per_bucket_ *= 2;
  }
  buckets_.push_back(make_bucket(point));
}

std::vector<Point> Series::points(size_t max_buckets) const {
  std::vector<Bucket> buckets = buckets_;
  const size_t most = std::max<size_t>(max_buckets, 1);
  if (buckets.size() > most) join(buckets, (buckets.size() + most - 1) / most);
  std::vector<Point> points;
  for (const Bucket& bucket : buckets) {
    std::array kept{bucket.low, bucket.high, bucket.odd};
    std::stable_sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) {
      return a && (!b || a->step < b->step);  // those that are there come first
    });
    for (const std::optional<Point>& point : kept) {
      if (point && (points.empty() || !(*point == points.back()))) points.push_back(*point);
    }
  }
  if (!points.empty() && points.back().step != newest_.step) points.push_back(newest_);
  return points;
}

Series::Bucket Series::make_bucket(const Point& point, int64_t count) {
  if (!std::isfinite(point.value)) return {.odd = point, .count = count};
  return {.low = point, .high = point, .count = count};
}

void Series::Bucket::merge(const Bucket& other) {
  if (!low || (other.low && other.low->value < low->value)) low = other.low;
  if (!high || (other.high && other.high->value > high->value)) high = other.high;
  if (!odd) odd = other.odd;
  count += other.count;
}

void Series::join(std::vector<Bucket>& buckets, size_t size) {
  size_t count = 0;
  for (size_t i = 0; i < buckets.size(); i += size) {
    Bucket joined = buckets[i];
    for (size_t k = i + 1; k < std::min(i + size, buckets.size()); ++k) joined.merge(buckets[k]);
    buckets[count++] = joined;
  }
  buckets.resize(count);
}

}  // namespace tensorpack::report
