// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/shard.h"

#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/launch_environment.h"

namespace tensorpack {
namespace {

class Shard final : public detail::RowStage, public detail::DescribedStage {
 public:
  Shard(DataFlowPtr flow, int64_t rank, int64_t size, bool equal)
      : RowStage(std::move(flow)), rank_(rank), size_(size), equal_(equal) {}

  void start(int64_t pass) override {
    flow().start(pass);
    is_at_end_ = false;
  }

  int64_t skip(int64_t count) override {
    if (!equal_) return RowStage::skip(count);
    return is_at_end_ ? 0 : flow().skip(count * size_) / size_;
  }

  std::optional<int64_t> size() const override {
    const auto size = flow().size();
    if (!size) return std::nullopt;
    const int64_t left_over = *size % size_;
    return *size / size_ + (!equal_ && rank_ < left_over ? 1 : 0);
  }

  // The number of ranks is no part of the program.
  std::optional<std::string> data_options() const override { return std::nullopt; }

 protected:
  std::optional<Item> next_item() override {
    if (is_at_end_ || flow().skip(rank_) < rank_) return end();
    std::optional<Item> item = read();
    if (!item) return end();
    // Of a round that is not complete, no part takes anything.
    const int64_t others = size_ - 1 - rank_;
    const bool is_complete = flow().skip(others) == others;
    if (!is_complete) is_at_end_ = true;
    return is_complete || !equal_ ? std::move(item) : std::nullopt;
  }

 private:
  std::nullopt_t end() {
    is_at_end_ = true;
    return std::nullopt;
  }

  int64_t rank_;
  int64_t size_;
  bool equal_;
  bool is_at_end_ = false;
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
