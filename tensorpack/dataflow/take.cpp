// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/take.h"

#include <algorithm>

#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class Take final : public detail::RowStage, public detail::DescribedStage {
 public:
  Take(DataFlowPtr flow, int64_t count) : RowStage(std::move(flow)), count_(count), left_(count) {}

  void start(int64_t pass) override {
    flow().start(pass);
    left_ = count_;
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = flow().skip(std::min(count, left_));
    left_ -= skipped;
    return skipped;
  }

  // Of a flow that does not know its size, nobody knows whether it reaches `count`.
  std::optional<int64_t> size() const override {
    const auto size = flow().size();
    if (!size) return std::nullopt;
    return std::min(*size, count_);
  }

  std::optional<std::string> data_options() const override { return std::to_string(count_); }
  bool is_endless() const override { return false; }

 protected:
  std::optional<Item> next_item() override {
    if (left_ == 0) return std::nullopt;
    --left_;
    return read();
  }

 private:
  int64_t count_;
  int64_t left_;
};

}  // namespace

Stage take(int64_t count) {
  TP_CHECK(count >= 0, "take", "the number of datapoints must not be negative, got {}.", count);
  return [=](DataFlowPtr flow) { return std::make_unique<Take>(std::move(flow), count); };
}

}  // namespace tensorpack
