// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/batch.h"

#include <fmt/format.h>

#include <limits>
#include <map>

#include "tensorpack/dataflow/detail/batch_count.h"
#include "tensorpack/dataflow/detail/collate.h"
#include "tensorpack/dataflow/detail/padding.h"
#include "tensorpack/dataflow/detail/row_source.h"
#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"

namespace tensorpack {
namespace {

// As in a call of batch().
std::string in_words(int64_t size, const BatchOptions& options) {
  return fmt::format("{}{}{}", size, options.remainder ? ", remainder" : "",
                     options.padding ? fmt::format(", padding {}", *options.padding) : "");
}

class Batch final : public DataFlow, public detail::ThreadedStage, public detail::DescribedStage {
 public:
  Batch(DataFlowPtr flow, int64_t size, BatchOptions options)
      : flow_(std::move(flow)),
        rows_(detail::row_source_of(*flow_)),
        size_(size),
        options_(options) {
    count_.check(flow_->size(), "batch");
  }

  void start(int64_t pass) override {
    flow_->start(pass);
    read_ = 0;
    reuse_.forget();
  }

  std::optional<DataPoint> next() override {
    if (rows_) return next_rows();
    if (options_.padding) return next_padded();
    const int64_t first = read_;
    // Local, so that an exception from the flow leaves no half-filled batch behind.
    detail::Collator collator(size_);
    while (collator.rows() < size_) {
      const auto point = read();
      if (!point) break;
      telling_where(first, [&] { collator.add(*point); });
    }
    if (!makes_batch(collator.rows())) return std::nullopt;
    return collator.take();
  }

  int64_t skip(int64_t count) override {
    const int64_t skipped = flow_->skip(count_.points_of(count));
    read_ += skipped;
    return count_.batches_of(skipped);
  }

  std::optional<int64_t> size() const override { return count_.batches_of(flow_->size()); }
  bool is_endless() const override { return flow_->is_endless(); }

  detail::StatsPtr stats() const override { return stats_; }
  std::optional<std::string> data_options() const override { return in_words(size_, options_); }

 private:
  // Rows of one source are equal in shape: there is nothing to pad.
  std::optional<DataPoint> next_rows() {
    std::vector<int64_t> numbers;
    numbers.reserve(size_);
    while (std::ssize(numbers) < size_) {
      const auto number = rows_->next_row();
      if (!number) break;
      numbers.push_back(*number);
    }
    if (!makes_batch(std::ssize(numbers))) return std::nullopt;
    return rows_->stack_rows(numbers);
  }

  std::optional<DataPoint> next_padded() {
    const int64_t first = read_;
    std::vector<DataPoint> points;
    while (std::ssize(points) < size_) {
      auto point = read();
      if (!point) break;
      reuse_.look(*point);
      points.push_back(std::move(*point));
    }
    if (!makes_batch(std::ssize(points))) return std::nullopt;
    DataPoint batch;
    telling_where(first, [&] { batch = detail::stack(points, options_.padding); });
    return batch;
  }

  // Whether so many make one; otherwise they are left out.
  bool makes_batch(int64_t points) const {
    if (points == size_ || (options_.remainder && points > 0)) return true;
    stats_->left_out += points;
    return false;
  }

  std::optional<DataPoint> read() {
    auto point = flow_->next();
    ++read_;
    return point;
  }

  // Datapoints that do not fit together are found by their number in the pass.
  template <typename Function>
  static void telling_where(int64_t first, Function function) {
    try {
      function();
    } catch (const Error&) {
      rethrow_with(fmt::format("in the batch that begins with datapoint {} of the pass", first));
    }
  }

  DataFlowPtr flow_;
  detail::RowSource* rows_;  // the flow, if it has rows
  int64_t size_;
  BatchOptions options_;
  detail::BatchCount count_{.size = size_, .remainder = options_.remainder};
  int64_t read_ = 0;                              // datapoints of the pass
  detail::ReuseWatch reuse_{"batch", size_ - 1};  // of datapoints that wait for their padding
  detail::StatsPtr stats_ = std::make_shared<StageStats>("Batch", 0, 0);
};

// Collects datapoints by key; batches are as ready as they get.
class BatchByKey final : public DataFlow, public detail::DescribedStage {
 public:
  using Key = std::vector<int64_t>;
  using KeyFunction = std::function<Key(const DataPoint&)>;

  BatchByKey(DataFlowPtr flow, int64_t size, KeyFunction key, BatchOptions options)
      : flow_(std::move(flow)), size_(size), key_(std::move(key)), options_(options) {}

  void start(int64_t pass) override {
    flow_->start(pass);
    waiting_.clear();
    reuse_.forget();
  }

  std::optional<DataPoint> next() override {
    while (auto point = flow_->next()) {
      reuse_.look(*point);
      const Key key = key_(*point);
      std::vector<DataPoint>& points = waiting_[key];
      points.push_back(std::move(*point));
      if (std::ssize(points) == size_) return stack(waiting_.extract(key));
    }
    if (waiting_.empty() || !options_.remainder) return std::nullopt;
    return stack(waiting_.extract(waiting_.begin()));
  }

  std::optional<std::string> data_options() const override { return in_words(size_, options_); }
  bool is_endless() const override { return flow_->is_endless(); }

 private:
  using Waiting = std::map<Key, std::vector<DataPoint>>;

  DataPoint stack(Waiting::node_type points) const {
    return detail::stack(points.mapped(), options_.padding);
  }

  DataFlowPtr flow_;
  int64_t size_;
  KeyFunction key_;
  BatchOptions options_;
  Waiting waiting_;
  detail::ReuseWatch reuse_{"batch_by_key", std::numeric_limits<int64_t>::max()};
};

Stage by_key(const char* where, int64_t size, BatchByKey::KeyFunction key, BatchOptions options) {
  TP_CHECK(size > 0, where, "the batch size must be positive, got {}.", size);
  return [size, key = std::move(key), options](DataFlowPtr flow) {
    return std::make_unique<BatchByKey>(std::move(flow), size, key, options);
  };
}

}  // namespace

Stage batch_by_key(int64_t size, std::function<int64_t(const DataPoint&)> key,
                   BatchOptions options) {
  TP_CHECK(key != nullptr, "batch_by_key",
           "the function is empty. Pass one that gives the key of a datapoint.");
  return by_key(
      "batch_by_key", size,
      [key = std::move(key)](const DataPoint& point) { return BatchByKey::Key{key(point)}; },
      options);
}

Stage batch_by_shape(int64_t size, size_t index, BatchOptions options) {
  return by_key(
      "batch_by_shape", size,
      [index](const DataPoint& point) {
        TP_CHECK(index < point.size(), "batch_by_shape",
                 "there is no component {}: the datapoint has {}. Count from 0.", index,
                 point.size());
        return point[index].sizes().vec();
      },
      options);
}

Stage batch(int64_t size, BatchOptions options) {
  TP_CHECK(size > 0, "batch", "the batch size must be positive, got {}.", size);
  return [=](DataFlowPtr flow) { return std::make_unique<Batch>(std::move(flow), size, options); };
}

}  // namespace tensorpack
