// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/detail/write_watch.h"

namespace tensorpack {

/// Yields the datapoints of a list, in its order.
///
/// The tensors are shared with the list: what comes behind must not change them in place.
/// A warning tells of it.
class FromList final : public DataFlow {
 public:
  explicit FromList(std::vector<DataPoint> points) : points_(std::move(points)) {}

  void start(int64_t /*pass*/) override {
    watch_.look("FromList", points_);
    position_ = 0;
  }

  std::optional<DataPoint> next() override {
    if (position_ == std::ssize(points_)) return std::nullopt;
    return points_[position_++];
  }

  int64_t skip(int64_t count) override {
    count = std::min(count, std::ssize(points_) - position_);
    position_ += count;
    return count;
  }

  std::optional<int64_t> size() const override { return std::ssize(points_); }

 private:
  std::vector<DataPoint> points_;
  int64_t position_ = 0;
  detail::WriteWatch watch_;
};

}  // namespace tensorpack
