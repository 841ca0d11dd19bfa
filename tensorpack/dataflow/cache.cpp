// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/cache.h"

#include <algorithm>
#include <limits>

#include "tensorpack/dataflow/detail/bytes_of.h"
#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/dataflow/format/tfrecord.h"
#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/host_memory.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

class Cache final : public DataFlow {
 public:
  Cache(DataFlowPtr flow, CacheOptions options)
      : flow_(std::move(flow)), shuffle_(options.shuffle), seed_(options.seed) {}

  void start(int64_t pass) override {
    if (is_of_another_seed()) forget();
    if (!is_complete_ && (pass > 0 || !points_.empty())) read_rest();
    watch_.look("cache", points_);
    pass_ = pass;
    position_ = 0;
    order_.clear();
  }

  // In pass 0 datapoints come as soon as the flow has them.
  std::optional<DataPoint> next() override {
    if (position_ == std::ssize(points_) && !is_complete_) {
      auto point = flow_->next();
      if (point) {
        add(std::move(*point));
      } else {
        complete();
      }
    }
    if (position_ == std::ssize(points_)) return std::nullopt;
    return points_[at(position_++)];
  }

  int64_t skip(int64_t count) override {
    if (!is_complete_) return DataFlow::skip(count);
    count = std::min(count, std::ssize(points_) - position_);
    position_ += count;
    return count;
  }

  std::optional<int64_t> size() const override {
    return is_complete_ ? std::ssize(points_) : flow_->size();
  }

  bool is_endless() const override { return flow_->is_endless(); }

 private:
  // The flow has stood in pass 0 ever since it was made.
  void read_rest() {
    while (auto point = flow_->next()) add(std::move(*point));
    complete();
  }

  void complete() {
    is_complete_ = true;
    reuse_.forget();
  }

  // Data that was read before the training settled its seed is not the training's data.
  bool is_of_another_seed() const { return filled_by_ && filled_by_ != seed_in_force(); }

  void forget() {
    points_.clear();
    bytes_ = 0;
    filled_by_.reset();
    is_complete_ = false;
    reuse_.forget();
    watch_ = {};
    flow_->start(0);
  }

  int64_t at(int64_t position) {
    if (!shuffle_ || pass_ == 0) return position;
    if (order_.empty()) {
      Rng rng(seed_.value(), pass_);
      order_ = random_permutation(std::ssize(points_), rng);
    }
    return order_[position];
  }

  // A flow that never ends would take all the memory without a sign.
  void add(DataPoint point) {
    const uint64_t much = host_memory() / 4;
    const bool was_much = bytes_ > much;
    reuse_.look(point);
    bytes_ += detail::bytes_of(point);
    if (!filled_by_) filled_by_ = seed_in_force();
    points_.push_back(std::move(point));
    if (was_much || bytes_ <= much) return;
    logging::warning(
        "[cache] {} of datapoints, {} of them, are in memory, and the flow goes on. If it is "
        "endless, put repeat() behind cache().",
        humanize_bytes(bytes_), points_.size());
  }

  DataFlowPtr flow_;
  bool shuffle_;
  StageSeed seed_;
  std::vector<DataPoint> points_;
  uint64_t bytes_ = 0;                 // of them
  std::optional<uint64_t> filled_by_;  // the seed in force when they were read
  std::vector<int64_t> order_;         // of this pass, once a datapoint was asked for
  int64_t pass_ = 0;
  int64_t position_ = 0;
  bool is_complete_ = false;
  detail::WriteWatch watch_;
  detail::ReuseWatch reuse_{"cache", std::numeric_limits<int64_t>::max()};
};

class CacheToDisk final : public DataFlow {
 public:
  CacheToDisk(DataFlowPtr flow, std::filesystem::path path)
      : flow_(std::move(flow)), path_(std::move(path)) {}

  void start(int64_t pass) override { file().start(pass); }
  std::optional<DataPoint> next() override { return file().next(); }
  int64_t skip(int64_t count) override { return file().skip(count); }

  std::optional<int64_t> size() const override { return file_ ? file_->size() : flow_->size(); }
  bool is_endless() const override { return !file_ && flow_->is_endless(); }

 private:
  TFRecordData& file() {
    if (!file_) {
      if (!std::filesystem::exists(path_)) {
        const int64_t count = save_tfrecord(*flow_, path_);
        logging::info("Cached {} in '{}'.", counted(count, "datapoint"), path_.string());
      }
      file_ = std::make_unique<TFRecordData>(path_);
    }
    return *file_;
  }

  DataFlowPtr flow_;
  std::filesystem::path path_;
  std::unique_ptr<TFRecordData> file_;
};

}  // namespace

Stage cache(CacheOptions options) {
  return [=](DataFlowPtr flow) { return std::make_unique<Cache>(std::move(flow), options); };
}

Stage cache_to_disk(std::filesystem::path path) {
  return [path = std::move(path)](DataFlowPtr flow) {
    return std::make_unique<CacheToDisk>(std::move(flow), path);
  };
}

}  // namespace tensorpack
