// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/repeat.h"

#include <algorithm>
#include <utility>

#include "tensorpack/dataflow/detail/row_stage.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class Repeat final : public detail::RowStage {
 public:
  Repeat(DataFlowPtr flow, int64_t times) : RowStage(std::move(flow)), times_(times) { start(0); }

  void start(int64_t pass) override {
    inner_pass_ = forever() ? pass : pass * times_;
    end_ = inner_pass_ + times_;
    flow().start(inner_pass_);
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = flow().skip(count);
    while (skipped < count && has_more_passes()) {
      skipped += jump_over_passes(count - skipped);
      flow().start(++inner_pass_);
      const int64_t in_pass = flow().skip(count - skipped);
      check_progress(in_pass > 0);
      skipped += in_pass;
    }
    return skipped;
  }

  std::optional<int64_t> size() const override {
    const auto size = flow().size();
    if (forever() || !size) return std::nullopt;
    return *size * times_;
  }

  bool is_endless() const override { return forever() || flow().is_endless(); }

 protected:
  std::optional<Item> next_item() override {
    auto item = read();
    while (!item && has_more_passes()) {
      flow().start(++inner_pass_);
      item = read();
      check_progress(item.has_value());
    }
    return item;
  }

 private:
  bool forever() const { return times_ == kForever; }
  bool has_more_passes() const { return forever() || inner_pass_ + 1 < end_; }

  // Leaves out whole passes, but for the last one that is needed, and returns how many datapoints
  // they have.
  int64_t jump_over_passes(int64_t count) {
    const int64_t size = flow().size().value_or(0);
    if (size <= 0) return 0;
    int64_t passes = (count - 1) / size;
    if (!forever()) passes = std::min(passes, end_ - inner_pass_ - 2);
    inner_pass_ += passes;
    return passes * size;
  }

  void check_progress(bool has_datapoints) const {
    TP_CHECK(has_datapoints || !forever(), "repeat",
             "pass {} of the flow has no datapoints, so repeating it would never yield one. Check "
             "what the flow reads, or what map() drops.",
             inner_pass_);
  }

  int64_t times_;
  int64_t inner_pass_ = 0;
  int64_t end_ = 0;
};

class RepeatEach final : public detail::RowStage {
 public:
  RepeatEach(DataFlowPtr flow, int64_t times) : RowStage(std::move(flow)), times_(times) {}

  void start(int64_t pass) override {
    flow().start(pass);
    left_ = 0;
  }

  int64_t skip(int64_t count) override {
    const int64_t of_this = std::min(count, left_);
    left_ -= of_this;
    const int64_t whole = (count - of_this) / times_;
    const int64_t skipped = of_this + flow().skip(whole) * times_;
    if (skipped < of_this + whole * times_) return skipped;
    return skipped + RowStage::skip(count - skipped);
  }

  std::optional<int64_t> size() const override {
    const auto size = flow().size();
    if (!size) return std::nullopt;
    return *size * times_;
  }

 protected:
  std::optional<Item> next_item() override {
    if (left_ == 0) {
      item_ = read();
      if (!item_) return std::nullopt;
      left_ = times_;
    }
    return --left_ == 0 ? std::exchange(item_, std::nullopt) : item_;
  }

 private:
  int64_t times_;
  int64_t left_ = 0;  // of `item_`
  std::optional<Item> item_;
};

}  // namespace

Stage repeat_each(int64_t times) {
  TP_CHECK(times > 0, "repeat_each", "the number of repetitions must be positive, got {}.", times);
  return [=](DataFlowPtr flow) { return std::make_unique<RepeatEach>(std::move(flow), times); };
}

Stage repeat(int64_t times) {
  TP_CHECK(times > 0 || times == kForever, "repeat",
           "the number of repetitions must be positive, or kForever, got {}.", times);
  return [=](DataFlowPtr flow) { return std::make_unique<Repeat>(std::move(flow), times); };
}

}  // namespace tensorpack
