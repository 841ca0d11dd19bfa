// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/combine.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

#include "tensorpack/dataflow/detail/pass_rng.h"
#include "tensorpack/dataflow/detail/total_size.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

using Flows = std::vector<DataFlowPtr>;

class Concat final : public DataFlow {
 public:
  explicit Concat(Flows flows) : flows_(std::move(flows)) {}

  void start(int64_t pass) override {
    for (const DataFlowPtr& flow : flows_) flow->start(pass);
    current_ = 0;
  }

  std::optional<DataPoint> next() override {
    for (; current_ < flows_.size(); ++current_) {
      if (auto point = flows_[current_]->next()) return point;
    }
    return std::nullopt;
  }

  int64_t skip(int64_t count) override {
    int64_t skipped = 0;
    while (current_ < flows_.size()) {
      skipped += flows_[current_]->skip(count - skipped);
      if (skipped == count) break;
      ++current_;
    }
    return skipped;
  }

  std::optional<int64_t> size() const override { return detail::total_size(flows_); }
  bool is_endless() const override { return detail::any_endless(flows_); }

 private:
  Flows flows_;
  size_t current_ = 0;
};

class Join final : public DataFlow {
 public:
  Join(Flows flows, JoinOptions options) : flows_(std::move(flows)), options_(options) {
    if (options_.shortest) return;
    const auto first = flows_[0]->size();
    for (size_t i = 1; i < flows_.size(); ++i) {
      const auto size = flows_[i]->size();
      TP_CHECK(!first || !size || *first == *size, "join",
               "flow 0 has {} and flow {} has {}. Make them equally long, or end with "
               "the shortest by {{.shortest = true}}.",
               counted(*first, "datapoint"), i, *size);
    }
  }

  void start(int64_t pass) override {
    for (const DataFlowPtr& flow : flows_) flow->start(pass);
    is_at_end_ = false;
  }

  std::optional<DataPoint> next() override {
    if (is_at_end_) return std::nullopt;
    DataPoint joined;
    size_t ended = 0;
    for (const DataFlowPtr& flow : flows_) {
      auto point = flow->next();
      if (point) {
        for (at::Tensor& component : *point) joined.push_back(std::move(component));
      } else {
        ++ended;
        if (options_.shortest) break;
      }
    }
    if (ended == 0) return joined;
    is_at_end_ = true;
    TP_CHECK(options_.shortest || ended == flows_.size(), "join",
             "{} of {} flows ended before the others. Make them equally long, or end with the "
             "shortest by {{.shortest = true}}.",
             ended, flows_.size());
    return std::nullopt;
  }

  int64_t skip(int64_t count) override {
    if (is_at_end_ || count == 0) return 0;
    int64_t shortest = count;
    for (const DataFlowPtr& flow : flows_) shortest = std::min(shortest, flow->skip(count));
    is_at_end_ = shortest < count;
    return shortest;
  }

  std::optional<int64_t> size() const override {
    std::optional<int64_t> shortest;
    for (const DataFlowPtr& flow : flows_) {
      const auto size = flow->size();
      if (!size) return std::nullopt;
      shortest = std::min(shortest.value_or(*size), *size);
    }
    return shortest;
  }

  // Ends with the first that ends, or fails there.
  bool is_endless() const override { return detail::all_endless(flows_); }

 private:
  Flows flows_;
  JoinOptions options_;
  bool is_at_end_ = false;
};

class RandomChoose final : public DataFlow {
 public:
  RandomChoose(Flows flows, std::vector<double> weights, std::optional<uint64_t> seed)
      : flows_(std::move(flows)), weights_(std::move(weights)), rng_(seed) {}

  void start(int64_t pass) override {
    for (const DataFlowPtr& flow : flows_) flow->start(pass);
    rng_.start(pass);
    is_at_end_ = false;
  }

  std::optional<DataPoint> next() override {
    if (is_at_end_) return std::nullopt;
    auto point = flows_[choose()]->next();
    is_at_end_ = !point;
    return point;
  }

  bool is_endless() const override { return detail::all_endless(flows_); }

 private:
  size_t choose() {
    constexpr double kScale = 0x1p-53;
    const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
    double place = static_cast<double>((*rng_)() >> 11) * kScale * total;
    for (size_t i = 0; i + 1 < weights_.size(); ++i) {
      place -= weights_[i];
      if (place < 0) return i;
    }
    return weights_.size() - 1;
  }

  Flows flows_;
  std::vector<double> weights_;
  detail::PassRng rng_;
  bool is_at_end_ = false;
};

class RandomMix final : public DataFlow {
 public:
  RandomMix(Flows flows, std::optional<uint64_t> seed) : flows_(std::move(flows)), rng_(seed) {
    for (size_t i = 0; i < flows_.size(); ++i) {
      const auto size = flows_[i]->size();
      TP_CHECK(size, "random_mix",
               "flow {} does not know its size, so that nobody can say how likely it is. Use "
               "random_choose().",
               i);
      sizes_.push_back(*size);
    }
    left_ = sizes_;
  }

  void start(int64_t pass) override {
    for (const DataFlowPtr& flow : flows_) flow->start(pass);
    rng_.start(pass);
    left_ = sizes_;
  }

  std::optional<DataPoint> next() override {
    const auto chosen = choose();
    if (!chosen) return std::nullopt;
    auto point = flows_[*chosen]->next();
    check_size(*chosen, point.has_value());
    return point;
  }

  // Whose turn it would have been can be told without reading.
  int64_t skip(int64_t count) override {
    std::vector<int64_t> turns(flows_.size());
    int64_t skipped = 0;
    for (; skipped < count; ++skipped) {
      const auto chosen = choose();
      if (!chosen) break;
      ++turns[*chosen];
    }
    for (size_t i = 0; i < flows_.size(); ++i) {
      check_size(i, flows_[i]->skip(turns[i]) == turns[i]);
    }
    return skipped;
  }

  std::optional<int64_t> size() const override {
    return std::accumulate(sizes_.begin(), sizes_.end(), int64_t{0});
  }

 private:
  // Each datapoint that is left is equally likely to be the next.
  std::optional<size_t> choose() {
    const int64_t total = std::accumulate(left_.begin(), left_.end(), int64_t{0});
    if (total == 0) return std::nullopt;
    auto place = static_cast<int64_t>(rng_->below(static_cast<uint64_t>(total)));
    size_t i = 0;
    while (place >= left_[i]) place -= left_[i++];
    --left_[i];
    return i;
  }

  void check_size(size_t flow, bool is_right) const {
    TP_CHECK(is_right, "random_mix",
             "flow {} has ended before the {} that its size() says. Correct size().", flow,
             counted(sizes_[flow], "datapoint"));
  }

  Flows flows_;
  detail::PassRng rng_;
  std::vector<int64_t> sizes_;
  std::vector<int64_t> left_;  // of each flow
};

// Makes the combination, and has the time taken of it and of what it is made of.
template <typename Flow, typename... Args>
DataFlowPtr combine(const char* where, OwnedList<DataFlow> flows, Args&&... args) {
  TP_CHECK(!flows.empty(), where, "there are no flows. Pass at least one.");
  Flows list = flows.release();
  std::vector<std::shared_ptr<StageStats>> inputs;
  for (DataFlowPtr& flow : list) inputs.push_back(detail::meter(flow));
  DataFlowPtr combined = std::make_unique<Flow>(std::move(list), std::forward<Args>(args)...);
  detail::meter(combined, std::move(inputs));
  return combined;
}

}  // namespace

DataFlowPtr concat(OwnedList<DataFlow> flows) {
  return combine<Concat>("concat", std::move(flows));
}

DataFlowPtr join(OwnedList<DataFlow> flows, JoinOptions options) {
  return combine<Join>("join", std::move(flows), options);
}

DataFlowPtr random_choose(OwnedList<DataFlow> flows, RandomChooseOptions options) {
  std::vector<double>& weights = options.weights;
  if (weights.empty()) weights.assign(flows.size(), 1);
  TP_CHECK(weights.size() == flows.size(), "random_choose",
           "{} cannot be chosen by {}. Pass one for each.", counted(std::ssize(flows), "flow"),
           counted(std::ssize(weights), "weight"));
  const bool are_valid = std::all_of(weights.begin(), weights.end(),
                                     [](double w) { return w >= 0 && std::isfinite(w); });
  TP_CHECK(are_valid && std::accumulate(weights.begin(), weights.end(), 0.0) > 0, "random_choose",
           "weights must not be negative, and not all 0.");
  return combine<RandomChoose>("random_choose", std::move(flows), std::move(weights), options.seed);
}

DataFlowPtr random_mix(OwnedList<DataFlow> flows, RandomMixOptions options) {
  return combine<RandomMix>("random_mix", std::move(flows), options.seed);
}

}  // namespace tensorpack
