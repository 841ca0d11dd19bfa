// SPDX-License-Identifier: Apache-2.0
// One pass of a dataflow as a range.
#pragma once

#include <cstddef>
#include <iterator>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// The range that datapoints() returns. It can be iterated once.
class DataPoints {
 public:
  class Iterator {
   public:
    using value_type = DataPoint;
    using difference_type = std::ptrdiff_t;

    explicit Iterator(DataPoints* range) : range_(range) {}
    DataPoint& operator*() const { return *range_->current_; }
    Iterator& operator++() {
      range_->advance();
      return *this;
    }
    void operator++(int) { range_->advance(); }
    bool operator==(std::default_sentinel_t) const { return !range_->current_; }

   private:
    DataPoints* range_;
  };

  DataPoints(DataFlow& flow, int64_t pass) : flow_(flow), pass_(pass) {}

  Iterator begin() {
    flow_.start(pass_);
    advance();
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return {}; }

 private:
  void advance() { current_ = flow_.next(); }

  DataFlow& flow_;
  int64_t pass_;
  std::optional<DataPoint> current_;
};

/// Pass number `pass` of `flow`, from its beginning: `for (DataPoint& p : datapoints(flow))`.
inline DataPoints datapoints(DataFlow& flow, int64_t pass = 0) { return {flow, pass}; }

}  // namespace tensorpack
