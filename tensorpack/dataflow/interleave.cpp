// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/interleave.h"

#include "tensorpack/dataflow/detail/draw_scope.h"
#include "tensorpack/dataflow/detail/part.h"
#include "tensorpack/dataflow/detail/total_size.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

DataFlowPtr with_prefetch(DataFlowPtr flow, int64_t capacity) {
  return capacity > 0 ? std::move(flow) | prefetch(capacity) : std::move(flow);
}

class Interleave final : public DataFlow {
 public:
  Interleave(DataFlowPtr flow, OpenFlow open, InterleaveOptions options)
      : flow_(std::move(flow)),
        open_(std::move(open)),
        options_(options),
        part_(detail::part_of(*flow_)) {}

  void start(int64_t pass) override {
    flows_.clear();
    opened_ = 0;
    flow_->start(pass);
    pass_ = pass;
    turn_ = 0;
    has_started_ = false;
  }

  std::optional<DataPoint> next() override {
    if (!has_started_) open_first();
    while (!flows_.empty()) {
      turn_ %= flows_.size();
      if (auto point = flows_[turn_]->next()) {
        ++turn_;
        return point;
      }
      replace();
    }
    return std::nullopt;
  }

  bool is_endless() const override { return flow_->is_endless(); }

 private:
  void open_first() {
    has_started_ = true;
    while (std::ssize(flows_) < options_.cycle) {
      DataFlowPtr opened = open_next();
      if (!opened) break;
      flows_.push_back(std::move(opened));
    }
  }

  // The flow whose turn it is has ended.
  void replace() {
    if (DataFlowPtr opened = open_next()) {
      flows_[turn_] = std::move(opened);
    } else {
      flows_.erase(flows_.begin() + static_cast<std::ptrdiff_t>(turn_));
    }
  }

  DataFlowPtr open_next() {
    const auto point = flow_->next();
    if (!point) return nullptr;
    const uint64_t seed_of_pass = derive_seed(seed_.value(), static_cast<uint64_t>(pass_));
    const detail::DrawScope scope(derive_seed(seed_of_pass, part_.number_in_all(opened_++)));
    DataFlowPtr opened = open_(*point);
    TP_CHECK(opened != nullptr, "interleave", "the function that opens flows returned none.");
    opened->start(pass_);
    return with_prefetch(std::move(opened), options_.prefetch);
  }

  DataFlowPtr flow_;
  OpenFlow open_;
  InterleaveOptions options_;
  detail::Part part_;
  StageSeed seed_ = StageSeed::counted_apart();
  std::vector<DataFlowPtr> flows_;
  int64_t opened_ = 0;  // in this pass
  int64_t pass_ = 0;
  size_t turn_ = 0;
  bool has_started_ = false;
};

class Copies final : public DataFlow {
 public:
  explicit Copies(std::vector<DataFlowPtr> flows) : flows_(std::move(flows)) { start(0); }

  void start(int64_t pass) override {
    open_.clear();
    for (const DataFlowPtr& flow : flows_) {
      flow->start(pass);
      open_.push_back(flow.get());
    }
    turn_ = 0;
  }

  std::optional<DataPoint> next() override {
    while (!open_.empty()) {
      turn_ %= open_.size();
      if (auto point = open_[turn_]->next()) {
        ++turn_;
        return point;
      }
      open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(turn_));
    }
    return std::nullopt;
  }

  std::optional<int64_t> size() const override { return detail::total_size(flows_); }
  bool is_endless() const override { return detail::any_endless(flows_); }

 private:
  std::vector<DataFlowPtr> flows_;
  std::vector<DataFlow*> open_;
  size_t turn_ = 0;
};

}  // namespace

Stage interleave(OpenFlow open, InterleaveOptions options) {
  TP_CHECK(open != nullptr, "interleave",
           "the function is empty. Pass one that makes a flow of a datapoint.");
  TP_CHECK(options.cycle > 0 && options.prefetch >= 0, "interleave",
           "the cycle {} must be positive and the prefetch {} not negative.", options.cycle,
           options.prefetch);
  return [open = std::move(open), options](DataFlowPtr flow) {
    return std::make_unique<Interleave>(std::move(flow), open, options);
  };
}

DataFlowPtr run_multiple_copies(const std::function<DataFlowPtr(int64_t copy)>& make,
                                CopiesOptions options) {
  TP_CHECK(make != nullptr, "run_multiple_copies",
           "the function is empty. Pass one that makes a copy.");
  TP_CHECK(options.copies > 0 && options.prefetch > 0, "run_multiple_copies",
           "the copies {} and the prefetch {} must be positive.", options.copies, options.prefetch);
  std::vector<DataFlowPtr> flows;
  std::vector<std::shared_ptr<StageStats>> inputs;
  for (int64_t i = 0; i < options.copies; ++i) {
    DataFlowPtr flow = make(i);
    TP_CHECK(flow != nullptr, "run_multiple_copies", "the function returned no flow for copy {}.",
             i);
    flows.push_back(std::move(flow) | prefetch(options.prefetch));
    inputs.push_back(detail::meter(flows.back()));
  }
  DataFlowPtr copies = std::make_unique<Copies>(std::move(flows));
  detail::meter(copies, std::move(inputs));
  return copies;
}

}  // namespace tensorpack
