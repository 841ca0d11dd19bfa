// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/locally_shuffle.h"

#include <algorithm>
#include <deque>

#include "tensorpack/dataflow/detail/pass_rng.h"
#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class LocallyShuffle final : public detail::RowStage, public detail::DescribedStage {
 public:
  LocallyShuffle(DataFlowPtr flow, int64_t buffer_size, LocallyShuffleOptions options)
      : RowStage(std::move(flow), "locally_shuffle", buffer_size),
        buffer_size_(buffer_size),
        options_(options),
        rng_(options.seed) {}

  void start(int64_t pass) override {
    flow().start(pass);
    keep_none();
    rng_.start(pass);
    buffer_.clear();
    since_shuffle_ = 0;
    ended_ = false;
  }

  std::optional<int64_t> size() const override {
    const auto size = flow().size();
    if (!size) return std::nullopt;
    return *size * options_.reuse;
  }

  std::optional<std::string> data_options() const override {
    return fmt::format("{}, reuse {}, interval {}", buffer_size_, options_.reuse,
                       options_.interval);
  }

 protected:
  std::optional<Item> next_item() override {
    fill();
    if (buffer_.empty()) return std::nullopt;
    Item item = std::move(buffer_.front());
    buffer_.pop_front();
    return item;
  }

 private:
  void fill() {
    while (!ended_ && std::ssize(buffer_) < buffer_size_) {
      const auto item = read();
      ended_ = !item;
      for (int64_t i = 0; item && i < options_.reuse; ++i) buffer_.push_back(*item);
      if (item && ++since_shuffle_ < options_.interval) continue;
      shuffle();
    }
  }

  void shuffle() {
    since_shuffle_ = 0;
    for (size_t i = buffer_.size(); i > 1; --i) std::swap(buffer_[i - 1], buffer_[rng_->below(i)]);
  }

  int64_t buffer_size_;
  LocallyShuffleOptions options_;
  detail::PassRng rng_;
  std::deque<Item> buffer_;
  int64_t since_shuffle_ = 0;
  bool ended_ = false;
};

}  // namespace

Stage locally_shuffle(int64_t buffer_size, LocallyShuffleOptions options) {
  TP_CHECK(buffer_size > 0 && options.reuse > 0 && options.interval >= 0, "locally_shuffle",
           "the buffer size {} and .reuse {} must be positive, .interval {} not negative.",
           buffer_size, options.reuse, options.interval);
  if (options.interval == 0) options.interval = std::max<int64_t>(buffer_size / 3, 1);
  return [=](DataFlowPtr flow) {
    return std::make_unique<LocallyShuffle>(std::move(flow), buffer_size, options);
  };
}

}  // namespace tensorpack
