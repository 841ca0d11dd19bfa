// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/shuffle.h"

#include <map>
#include <numeric>

#include "tensorpack/dataflow/detail/pass_rng.h"
#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

class Shuffle final : public detail::RowStage, public detail::DescribedStage {
 public:
  Shuffle(DataFlowPtr flow, int64_t buffer_size, std::optional<uint64_t> seed)
      : RowStage(std::move(flow), "shuffle", buffer_size), buffer_size_(buffer_size), rng_(seed) {}

  void start(int64_t pass) override {
    flow().start(pass);
    keep_none();
    buffer_.clear();
    rng_.start(pass);
    read_ = 0;
    ended_ = false;
  }

  // Plays the game with numbers in place of datapoints first: those that would have been yielded
  // need not be read. Only where the size is known can that be told.
  int64_t skip(int64_t count) override {
    const auto size = flow().size();
    if (!size) return RowStage::skip(count);
    std::vector<int64_t> slots(buffer_.size());  // a place in the old buffer, or -1 - the number
    std::iota(slots.begin(), slots.end(), 0);    // of one still to be read
    int64_t skipped = 0;
    int64_t arrived = read_;
    for (; skipped < count; ++skipped) {
      for (; arrived < *size && std::ssize(slots) < buffer_size_; ++arrived) {
        slots.push_back(-1 - arrived);
      }
      if (slots.empty()) break;
      std::swap(slots[rng_->below(slots.size())], slots.back());
      slots.pop_back();
    }
    read_into(slots, arrived);
    return skipped;
  }

  std::optional<int64_t> size() const override { return flow().size(); }

  std::optional<std::string> data_options() const override {
    return flow().size() <= buffer_size_ && flow().size() ? "all" : std::to_string(buffer_size_);
  }

 protected:
  std::optional<Item> next_item() override {
    fill();
    if (buffer_.empty()) return std::nullopt;
    std::swap(buffer_[rng_->below(buffer_.size())], buffer_.back());
    Item item = std::move(buffer_.back());
    buffer_.pop_back();
    return item;
  }

 private:
  // Makes the buffer that `slots` describes, having gone on to datapoint number `arrived`.
  void read_into(const std::vector<int64_t>& slots, int64_t arrived) {
    std::vector<Item> buffer(slots.size());
    std::map<int64_t, size_t> wanted;  // by the order in which they come
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] >= 0) {
        buffer[i] = std::move(buffer_[slots[i]]);
      } else {
        wanted.emplace(-1 - slots[i], i);
      }
    }
    for (const auto& [number, slot] : wanted) {
      skip_to(number);
      auto item = read();
      check_size(item.has_value());
      buffer[slot] = std::move(*item);
      ++read_;
    }
    skip_to(arrived);
    buffer_ = std::move(buffer);
  }

  void skip_to(int64_t number) {
    const int64_t skipped = flow().skip(number - read_);
    check_size(skipped == number - read_);
    read_ = number;
  }

  void check_size(bool is_right) const {
    TP_CHECK(is_right, "shuffle",
             "a pass of the flow has ended before the {} that its size() says. Correct "
             "size(), or leave it out.",
             counted(*flow().size(), "datapoint"));
  }

  void fill() {
    while (!ended_ && std::ssize(buffer_) < buffer_size_) {
      auto item = read();
      if (item) {
        buffer_.push_back(std::move(*item));
        ++read_;
      } else {
        ended_ = true;
      }
    }
  }

  int64_t buffer_size_;
  detail::PassRng rng_;
  std::vector<Item> buffer_;
  int64_t read_ = 0;  // of the pass
  bool ended_ = false;
};

}  // namespace

Stage shuffle(ShuffleOptions options) {
  return [options](DataFlowPtr flow) {
    const auto size = flow->size();
    TP_CHECK(
        size, "shuffle",
        "the flow does not know its size, so it cannot be shuffled as a whole. Pass the number "
        "of datapoints to keep in memory, for example shuffle(10'000).");
    return std::make_unique<Shuffle>(std::move(flow), *size, options.seed);
  };
}

Stage shuffle(int64_t buffer_size, ShuffleOptions options) {
  TP_CHECK(buffer_size > 0, "shuffle", "the buffer size must be positive, got {}.", buffer_size);
  return [=](DataFlowPtr flow) {
    return std::make_unique<Shuffle>(std::move(flow), buffer_size, options.seed);
  };
}

}  // namespace tensorpack
