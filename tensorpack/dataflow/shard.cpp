// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/shard.h"

#include <algorithm>
#include <limits>

#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/launch_environment.h"

namespace tensorpack {
namespace {

class Shard final : public detail::RowStage,
                    public detail::ThreadedStage,
                    public detail::DescribedStage {
 public:
  Shard(DataFlowPtr flow, int64_t rank, int64_t size, bool equal)
      : RowStage(std::move(flow)), rank_(rank), size_(size), equal_(equal) {
    if (equal_) stats_->leaves_out = this->flow().size().value_or(0) % size_;
    stats_->part = detail::part_of(this->flow()).part(rank, size);
  }

  void start(int64_t pass) override {
    flow().start(pass);
    is_at_end_ = false;
  }

  int64_t skip(int64_t count) override {
    if (!equal_) return RowStage::skip(count);
    if (is_at_end_) return 0;
    const int64_t wanted = std::min(count, std::numeric_limits<int64_t>::max() / size_) * size_;
    const int64_t skipped = flow().skip(wanted);
    if (skipped < wanted) end(skipped % size_);
    return skipped / size_;
  }

  std::optional<int64_t> size() const override {
    const auto size = flow().size();
    if (!size) return std::nullopt;
    const int64_t left_over = *size % size_;
    return *size / size_ + (!equal_ && rank_ < left_over ? 1 : 0);
  }

  // The number of ranks is no part of the program.
  std::optional<std::string> data_options() const override { return std::nullopt; }

  detail::StatsPtr stats() const override { return stats_; }

 protected:
  std::optional<Item> next_item() override {
    if (is_at_end_) return std::nullopt;
    const int64_t before = flow().skip(rank_);
    if (before < rank_) return end(before);
    std::optional<Item> item = read();
    if (!item) return end(before);
    const int64_t others = size_ - 1 - rank_;
    const int64_t behind = flow().skip(others);
    if (behind < others) end(before + 1 + behind);
    return is_at_end_ && equal_ ? std::nullopt : std::move(item);
  }

 private:
  // The last round has so many datapoints, fewer than there are parts: of equal parts, none takes
  // any of them. All parts count them all, so that each knows by itself that some are left out.
  std::nullopt_t end(int64_t round) {
    is_at_end_ = true;
    if (equal_) stats_->left_out += round;
    return std::nullopt;
  }

  int64_t rank_;
  int64_t size_;
  bool equal_;
  bool is_at_end_ = false;
  detail::StatsPtr stats_ = std::make_shared<StageStats>("Shard", 0, 0);
};

}  // namespace

Stage shard(ShardOptions options) {
  TP_CHECK(options.rank.has_value() == options.size.has_value(), "shard",
           "only one of .rank and .size is set. Set both, or none for those of this process.");
  const LaunchEnvironment process = options.rank ? LaunchEnvironment() : detect_launch();
  const int rank = options.rank.value_or(process.rank);
  const int size = options.size.value_or(process.size);
  TP_CHECK(rank >= 0 && rank < size, "shard",
           "part {} of {} does not exist. Pass a .rank from 0 to .size - 1.", rank, size);
  return [=](DataFlowPtr flow) -> DataFlowPtr {
    if (size == 1) return flow;
    return std::make_unique<Shard>(std::move(flow), rank, size, options.equal);
  };
}

}  // namespace tensorpack
