// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/batch.h"

#include <limits>

#include "tensorpack/dataflow/detail/collate.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class Batch final : public DataFlow {
 public:
  Batch(DataFlowPtr flow, int64_t size, BatchOptions options)
      : flow_(std::move(flow)), size_(size), options_(options) {
    const auto points = flow_->size();
    TP_CHECK(
        options_.remainder || !points || *points >= size_, "batch",
        "a pass has {} datapoints, too few for one batch of {}. Choose a smaller batch, or keep "
        "short batches with {{.remainder = true}}.",
        *points, size_);
  }

  void start(int64_t pass) override { flow_->start(pass); }

  std::optional<DataPoint> next() override {
    // Local, so that an exception from the flow leaves no half-filled batch behind.
    detail::Collator collator(size_);
    while (collator.rows() < size_) {
      auto point = flow_->next();
      if (!point) break;
      collator.add(*point);
    }
    const bool complete = collator.rows() == size_;
    if (!complete && !(options_.remainder && collator.rows() > 0)) return std::nullopt;
    return collator.take();
  }

  int64_t skip(int64_t count) override {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    return batches_of(flow_->skip(count > kMax / size_ ? kMax : count * size_));
  }

  std::optional<int64_t> size() const override {
    const auto points = flow_->size();
    if (!points) return std::nullopt;
    return batches_of(*points);
  }

 private:
  int64_t batches_of(int64_t points) const {
    return points / size_ + (options_.remainder && points % size_ > 0 ? 1 : 0);
  }

  DataFlowPtr flow_;
  int64_t size_;
  BatchOptions options_;
};

}  // namespace

Stage batch(int64_t size, BatchOptions options) {
  TP_CHECK(size > 0, "batch", "the batch size must be positive, got {}.", size);
  return [=](DataFlowPtr flow) { return std::make_unique<Batch>(std::move(flow), size, options); };
}

}  // namespace tensorpack
