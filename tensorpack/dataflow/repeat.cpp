// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/repeat.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

class Repeat final : public DataFlow {
 public:
  Repeat(DataFlowPtr flow, int64_t times) : flow_(std::move(flow)), times_(times) { start(0); }

  void start(int64_t pass) override {
    inner_pass_ = forever() ? pass : pass * times_;
    end_ = inner_pass_ + times_;
    flow_->start(inner_pass_);
  }

  std::optional<DataPoint> next() override {
    if (auto point = flow_->next()) return point;
    while (forever() || inner_pass_ + 1 < end_) {
      flow_->start(++inner_pass_);
      if (auto point = flow_->next()) return point;
      TP_CHECK(
          !forever(), "repeat",
          "pass {} of the flow has no datapoints, so repeating it would never yield one. Check "
          "what the flow reads, or what map() drops.",
          inner_pass_);
    }
    return std::nullopt;
  }

  std::optional<int64_t> size() const override {
    const auto size = flow_->size();
    if (forever() || !size) return std::nullopt;
    return *size * times_;
  }

 private:
  bool forever() const { return times_ == kForever; }

  DataFlowPtr flow_;
  int64_t times_;
  int64_t inner_pass_ = 0;
  int64_t end_ = 0;
};

}  // namespace

Stage repeat(int64_t times) {
  TP_CHECK(times > 0 || times == kForever, "repeat",
           "the number of repetitions must be positive, or kForever, got {}.", times);
  return [=](DataFlowPtr flow) { return std::make_unique<Repeat>(std::move(flow), times); };
}

}  // namespace tensorpack
