// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/shuffle.h"

#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class Shuffle final : public DataFlow {
 public:
  Shuffle(DataFlowPtr flow, int64_t buffer_size, uint64_t seed)
      : flow_(std::move(flow)), buffer_size_(buffer_size), seed_(seed), rng_(seed, 0) {}

  void start(int64_t pass) override {
    flow_->start(pass);
    buffer_.clear();
    rng_ = Rng(seed_, pass);
    ended_ = false;
  }

  std::optional<DataPoint> next() override {
    fill();
    if (buffer_.empty()) return std::nullopt;
    std::swap(buffer_[rng_.below(buffer_.size())], buffer_.back());
    DataPoint point = std::move(buffer_.back());
    buffer_.pop_back();
    return point;
  }

  std::optional<int64_t> size() const override { return flow_->size(); }

 private:
  void fill() {
    while (!ended_ && std::ssize(buffer_) < buffer_size_) {
      auto point = flow_->next();
      if (point) {
        buffer_.push_back(std::move(*point));
      } else {
        ended_ = true;
      }
    }
  }

  DataFlowPtr flow_;
  int64_t buffer_size_;
  uint64_t seed_;
  Rng rng_;
  std::vector<DataPoint> buffer_;
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
    return std::make_unique<Shuffle>(std::move(flow), *size, seed_or_next(options.seed));
  };
}

Stage shuffle(int64_t buffer_size, ShuffleOptions options) {
  TP_CHECK(buffer_size > 0, "shuffle", "the buffer size must be positive, got {}.", buffer_size);
  return [=](DataFlowPtr flow) {
    return std::make_unique<Shuffle>(std::move(flow), buffer_size, seed_or_next(options.seed));
  };
}

}  // namespace tensorpack
