// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/parallel_map.h"

#include <limits>
#include <map>
#include <mutex>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/detail/collate.h"
#include "tensorpack/dataflow/detail/map_runner.h"
#include "tensorpack/dataflow/detail/work_ahead.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

detail::WorkAheadOptions options_for(const char* name, const ParallelMapOptions& options) {
  const int64_t threads = options.threads == 0 ? affinity_cores() : options.threads;
  return {.name = name,
          .threads = threads,
          .capacity = options.capacity == 0 ? 4 * threads : options.capacity,
          .ordered = options.ordered};
}

std::shared_ptr<detail::MapRunner> runner_for(const char* name, const detail::MapWork& work,
                                              const ParallelMapOptions& options) {
  return std::make_shared<detail::MapRunner>(
      name, work, MapOptions{.on_error = options.on_error, .seed = options.seed});
}

DataFlowPtr parallel(const char* name, DataFlowPtr flow, std::shared_ptr<detail::MapRunner> run,
                     const ParallelMapOptions& options) {
  const bool keeps_all = run->keeps_all();
  const auto ahead = options_for(name, options);
  return std::make_unique<detail::WorkAheadFlow>(
      std::move(flow),
      [run = std::move(run)](int64_t pass) {
        return [run, pass](DataPoint point, int64_t number) {
          return (*run)(std::move(point), pass, number);
        };
      },
      keeps_all, ahead, detail::stats_for(ahead));
}

// The batches that threads are filling, by their number in the pass.
class BatchesInWork {
 public:
  explicit BatchesInWork(int64_t size) : size_(size) {}

  void put(int64_t number, const DataPoint& point) {
    batch_of(number, point)->put(point, number % size_);
  }

  // For when all of its rows have been put.
  DataPoint take(int64_t batch, int64_t rows) {
    const std::lock_guard lock(mutex_);
    return std::move(batches_.extract(batch).mapped())->take(rows);
  }

  void forget(int64_t batch) {
    const std::lock_guard lock(mutex_);
    batches_.erase(batch);
  }

 private:
  using CollatorPtr = std::shared_ptr<detail::Collator>;

  CollatorPtr batch_of(int64_t number, const DataPoint& point) {
    const std::lock_guard lock(mutex_);
    CollatorPtr& batch = batches_[number / size_];
    if (!batch) {
      auto opened = std::make_shared<detail::Collator>(size_);
      opened->open(point, number % size_);
      batch = std::move(opened);
    }
    return batch;
  }

  int64_t size_;
  std::mutex mutex_;
  std::map<int64_t, CollatorPtr> batches_;
};

class MapAndBatch final : public DataFlow, public detail::ThreadedStage {
 public:
  MapAndBatch(DataFlowPtr flow, std::shared_ptr<detail::MapRunner> run, int64_t size,
              bool remainder, detail::WorkAheadOptions options)
      : size_(size),
        remainder_(remainder),
        rows_(
            std::move(flow),
            [this, run = std::move(run)](int64_t pass) {
              return [run, pass, batches = batches_](DataPoint point, int64_t number) {
                batches->put(number, *(*run)(std::move(point), pass, number));
                return std::optional(DataPoint());  // the row is done
              };
            },
            /*keeps_all=*/true, options, detail::stats_for(options)) {
    const auto points = rows_.size();
    TP_CHECK(remainder_ || !points || *points >= size_, "map_and_batch",
             "a pass has {} datapoints, too few for one batch of {}. Choose a smaller batch, or "
             "keep short batches with {{.remainder = true}}.",
             *points, size_);
  }

  void start(int64_t pass) override {
    rows_.start(pass);
    batches_ = std::make_shared<BatchesInWork>(size_);
    row_ = 0;
  }

  std::optional<DataPoint> next() override {
    finish_failed_batch();
    const int64_t batch = row_ / size_;
    while (row_ == batch * size_ || row_ % size_ != 0) {
      if (!next_row(batch)) return last_batch(batch);
    }
    return batches_->take(batch, size_);
  }

  int64_t skip(int64_t count) override {
    finish_failed_batch();
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    const int64_t first = row_;
    const int64_t rows = count > kMax / size_ ? kMax : count * size_;
    row_ += rows_.skip(rows);
    const int64_t skipped = batches_in(row_ - first);
    for (int64_t batch = first / size_; batch * size_ < row_; ++batch) batches_->forget(batch);
    row_ = (row_ + size_ - 1) / size_ * size_;
    return skipped;
  }

  std::optional<int64_t> size() const override {
    const auto points = rows_.size();
    if (!points) return std::nullopt;
    return batches_in(*points);
  }

  detail::StatsPtr stats() const override { return rows_.stats(); }

 private:
  bool next_row(int64_t batch) {
    try {
      if (!rows_.next()) return false;
    } catch (...) {
      ++row_;
      failed_batch_ = batch;
      throw;
    }
    ++row_;
    return true;
  }

  // The rest of a batch of which a row failed is of no use, and the next one begins after it.
  void finish_failed_batch() {
    if (!failed_batch_) return;
    while (row_ % size_ != 0 && next_row(*failed_batch_)) {
    }
    batches_->forget(*failed_batch_);
    row_ = (*failed_batch_ + 1) * size_;
    failed_batch_.reset();
  }

  std::optional<DataPoint> last_batch(int64_t batch) {
    const int64_t rows = row_ - batch * size_;
    row_ = (batch + 1) * size_;
    if (rows == 0) return std::nullopt;
    DataPoint last = batches_->take(batch, rows);
    return remainder_ ? std::optional(std::move(last)) : std::nullopt;
  }

  int64_t batches_in(int64_t points) const {
    return points / size_ + (remainder_ && points % size_ > 0 ? 1 : 0);
  }

  int64_t size_;
  bool remainder_;
  std::shared_ptr<BatchesInWork> batches_ = std::make_shared<BatchesInWork>(size_);
  int64_t row_ = 0;  // of the pass: how many were asked for
  std::optional<int64_t> failed_batch_;
  detail::WorkAheadFlow rows_;  // last: its threads use the others
};

}  // namespace

Stage detail::parallel_map_stage(MapWork work, ParallelMapOptions options) {
  return [work = std::move(work), options](DataFlowPtr flow) {
    constexpr const char* kName = "parallel_map";
    return parallel(kName, std::move(flow), runner_for(kName, work, options), options);
  };
}

Stage detail::map_and_batch_stage(MapWork work, int64_t size, bool remainder,
                                  ParallelMapOptions options) {
  TP_CHECK(size > 0, "map_and_batch", "the batch size must be positive, got {}.", size);
  TP_CHECK(options.capacity > 0, "map_and_batch",
           "the number of batches made ahead must be positive, got {}.", options.capacity);
  options.capacity *= size;
  return [work = std::move(work), size, remainder, options](DataFlowPtr flow) -> DataFlowPtr {
    constexpr const char* kName = "map_and_batch";
    auto run = runner_for(kName, work, options);
    if (!run->keeps_all()) {
      return parallel(kName, std::move(flow), std::move(run), options) |
             batch(size, {.remainder = remainder});
    }
    return std::make_unique<MapAndBatch>(std::move(flow), std::move(run), size, remainder,
                                         options_for(kName, options));
  };
}

}  // namespace tensorpack
