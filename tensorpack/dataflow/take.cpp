// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/take.h"

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class Take final : public DataFlow {
 public:
  Take(DataFlowPtr flow, int64_t count) : flow_(std::move(flow)), count_(count), left_(count) {}

  void start(int64_t pass) override {
    flow_->start(pass);
    left_ = count_;
  }

  std::optional<DataPoint> next() override {
    if (left_ == 0) return std::nullopt;
    --left_;
    return flow_->next();
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = flow_->skip(std::min(count, left_));
    left_ -= skipped;
    return skipped;
  }

  // Of a flow that does not know its size, nobody knows whether it reaches `count`.
  std::optional<int64_t> size() const override {
    const auto size = flow_->size();
    if (!size) return std::nullopt;
    return std::min(*size, count_);
  }

 private:
  DataFlowPtr flow_;
  int64_t count_;
  int64_t left_;
};

}  // namespace

Stage take(int64_t count) {
  TP_CHECK(count >= 0, "take", "the number of datapoints must not be negative, got {}.", count);
  return [=](DataFlowPtr flow) { return std::make_unique<Take>(std::move(flow), count); };
}

}  // namespace tensorpack
