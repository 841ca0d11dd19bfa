// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/fixed_size.h"

#include <algorithm>

#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Reads the passes of the flow as one stream.
class FixedSize final : public detail::RowStage, public detail::DescribedStage {
 public:
  FixedSize(DataFlowPtr flow, int64_t size, FixedSizeOptions options)
      : RowStage(repeat(kForever)(std::move(flow))), size_(size), options_(options) {}

  void start(int64_t pass) override {
    first_ = options_.keep_position ? pass * size_ : 0;
    if (!options_.keep_position) flow().start(pass);
    position_ = 0;
    is_there_ = !options_.keep_position;
  }

  // The stream is sought only when it is read: to start and skip costs one seek.
  int64_t skip(int64_t count) override {
    count = std::min(count, size_ - position_);
    if (!options_.keep_position) return RowStage::skip(count);
    position_ += count;
    is_there_ = is_there_ && count == 0;
    return count;
  }

  std::optional<int64_t> size() const override { return size_; }
  bool is_endless() const override { return false; }

  std::optional<std::string> data_options() const override { return std::to_string(size_); }

 protected:
  std::optional<Item> next_item() override {
    if (position_ == size_) return std::nullopt;
    if (!is_there_) {
      flow().start(0);
      flow().skip(first_ + position_);
    }
    is_there_ = true;
    auto item = read();
    ++position_;
    return item;
  }

 private:
  int64_t size_;
  FixedSizeOptions options_;
  int64_t first_ = 0;  // of this pass, in the stream of passes
  int64_t position_ = 0;
  bool is_there_ = true;  // whether the stream stands at `position_`
};

}  // namespace

Stage fixed_size(int64_t size, FixedSizeOptions options) {
  TP_CHECK(size > 0, "fixed_size", "the size of a pass must be positive, got {}.", size);
  return
      [=](DataFlowPtr flow) { return std::make_unique<FixedSize>(std::move(flow), size, options); };
}

}  // namespace tensorpack
