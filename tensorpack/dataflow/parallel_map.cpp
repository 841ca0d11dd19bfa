// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/parallel_map.h"

#include <torch/types.h>

#include <map>
#include <mutex>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/detail/batch_count.h"
#include "tensorpack/dataflow/detail/collate.h"
#include "tensorpack/dataflow/detail/map_runner.h"
#include "tensorpack/dataflow/detail/work_ahead.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

detail::WorkAheadOptions options_for(const ParallelMapOptions& options) {
  const int64_t threads = options.threads == 0 ? affinity_cores() : options.threads;
  return {.name = options.name,
          .threads = threads,
          .capacity = options.capacity == 0 ? 4 * threads : options.capacity,
          .ordered = options.ordered};
}

std::shared_ptr<detail::MapRunner> runner_for(const DataFlow& flow, const detail::MapWork& work,
                                              const ParallelMapOptions& options) {
  return std::make_shared<detail::MapRunner>(
      options.name, work, MapOptions{.on_error = options.on_error, .seed = options.seed},
      detail::part_of(flow));
}

DataFlowPtr parallel(DataFlowPtr flow, std::shared_ptr<detail::MapRunner> run,
                     const ParallelMapOptions& options) {
  const bool keeps_all = run->keeps_all();
  const auto ahead = options_for(options);
  return std::make_unique<detail::WorkAheadFlow>(
      std::move(flow),
      [run = std::move(run)](int64_t pass) {
        return [run, pass](DataPoint point, int64_t number) {
          return (*run)(std::move(point), pass, number);
        };
      },
      keeps_all, ahead, detail::stats_for(ahead));
}

// Memory for rows of a component.
at::Tensor empty_rows(const FilledComponent& component, int64_t rows) {
  std::vector<int64_t> shape = component.shape;
  shape.insert(shape.begin(), rows);
  const auto format = component.channels_last ? at::MemoryFormat::ChannelsLast  // of images
                                              : at::MemoryFormat::Contiguous;
  return at::empty(shape, at::TensorOptions(component.dtype).memory_format(format));
}

// The batches that threads are filling, by their number in the pass.
class BatchesInWork {
 public:
  // With a first component that is written in place, or without.
  BatchesInWork(int64_t size, std::optional<FilledComponent> filled)
      : size_(size), filled_(std::move(filled)) {}

  bool has_filled() const { return filled_.has_value(); }

  at::Tensor row(int64_t number) {
    const std::lock_guard lock(mutex_);
    at::Tensor& filled = batches_[number / size_].filled;
    if (!filled.defined()) filled = empty_rows(*filled_, size_);
    return filled.select(0, number % size_);
  }

  void put(int64_t number, const DataPoint& point) {
    collator_of(number, point)->put(point, number % size_);
  }

  // For when all of its rows have been put.
  DataPoint take(int64_t number, int64_t rows) {
    const std::lock_guard lock(mutex_);
    Batch batch = std::move(batches_.extract(number).mapped());
    DataPoint point = batch.collator->take(rows);
    if (!batch.filled.defined()) return point;
    if (rows < size_) batch.filled = batch.filled.narrow(0, 0, rows).clone();
    point.insert(point.begin(), std::move(batch.filled));
    return point;
  }

  void forget(int64_t batch) {
    const std::lock_guard lock(mutex_);
    batches_.erase(batch);
  }

 private:
  using CollatorPtr = std::shared_ptr<detail::Collator>;

  struct Batch {
    at::Tensor filled;
    CollatorPtr collator;
  };

  CollatorPtr collator_of(int64_t number, const DataPoint& point) {
    const std::lock_guard lock(mutex_);
    CollatorPtr& collator = batches_[number / size_].collator;
    if (!collator) {
      auto opened = std::make_shared<detail::Collator>(size_);
      opened->open(point, number % size_);
      collator = std::move(opened);
    }
    return collator;
  }

  int64_t size_;
  std::optional<FilledComponent> filled_;
  std::mutex mutex_;
  std::map<int64_t, Batch> batches_;
};

class MapAndBatch final : public DataFlow,
                          public detail::ThreadedStage,
                          public detail::DescribedStage {
 public:
  // With a component to be filled, the function finds its row behind the other components.
  MapAndBatch(DataFlowPtr flow, std::shared_ptr<detail::MapRunner> run, int64_t size,
              bool remainder, std::optional<FilledComponent> filled,
              detail::WorkAheadOptions options)
      : size_(size),
        remainder_(remainder),
        filled_(std::move(filled)),
        name_(options.name),
        rows_(
            std::move(flow),
            [this, run = std::move(run)](int64_t pass) {
              return [run, pass, batches = batches_](DataPoint point, int64_t number) {
                if (batches->has_filled()) point.push_back(batches->row(number));
                batches->put(number, *(*run)(std::move(point), pass, number));
                return std::optional(DataPoint());  // the row is done
              };
            },
            /*keeps_all=*/true, options, detail::stats_for(options)) {
    count_.check(rows_.size(), name_);
  }

  void start(int64_t pass) override {
    rows_.start(pass);
    batches_ = std::make_shared<BatchesInWork>(size_, filled_);
    row_ = 0;
    failed_batch_.reset();
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
    const int64_t first = row_;
    row_ += rows_.skip(count_.points_of(count));
    const int64_t skipped = count_.batches_of(row_ - first);
    for (int64_t batch = first / size_; batch * size_ < row_; ++batch) batches_->forget(batch);
    row_ = (row_ + size_ - 1) / size_ * size_;
    return skipped;
  }

  std::optional<int64_t> size() const override { return count_.batches_of(rows_.size()); }
  bool is_endless() const override { return rows_.is_endless(); }

  detail::StatsPtr stats() const override { return rows_.stats(); }
  std::optional<std::string> data_options() const override {
    return fmt::format("{}{}", size_, remainder_ ? ", remainder" : "");
  }

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
    if (remainder_) return last;
    stats()->left_out += rows;
    return std::nullopt;
  }

  int64_t size_;
  bool remainder_;
  detail::BatchCount count_{.size = size_, .remainder = remainder_};
  std::optional<FilledComponent> filled_;
  std::string name_;
  std::shared_ptr<BatchesInWork> batches_ = std::make_shared<BatchesInWork>(size_, filled_);
  int64_t row_ = 0;  // of the pass: how many were asked for
  std::optional<int64_t> failed_batch_;
  detail::WorkAheadFlow rows_;  // last: its threads use the others
};

// The datapoints that a stage of batches may have in work.
int64_t capacity_of(const std::string& name, int64_t size, int64_t batches) {
  TP_CHECK(size > 0, name, "the batch size must be positive, got {}.", size);
  TP_CHECK(batches > 0, name, "the number of batches made ahead must be positive, got {}.",
           batches);
  return batches * size;
}

// When some datapoints may be left out, nobody knows the row of a datapoint before all are made.
Stage filled_apart(FilledComponent component, FillFunction fill, int64_t size, bool remainder,
                   const ParallelMapOptions& options) {
  const auto make = [component, fill = std::move(fill)](DataPoint point, Rng& rng) {
    at::Tensor row = empty_rows(component, 1).select(0, 0);
    DataPoint made = fill(std::move(point), rng, row);
    made.insert(made.begin(), std::move(row));
    return made;
  };
  const auto arrange = [component](at::Tensor rows) {
    return component.channels_last ? rows.contiguous(at::MemoryFormat::ChannelsLast) : rows;
  };
  return [=](DataFlowPtr flow) {
    return std::move(flow) | parallel_map(make, options) | batch(size, {.remainder = remainder}) |
           map_component(0, arrange);
  };
}

}  // namespace

Stage detail::parallel_map_stage(MapWork work, ParallelMapOptions options) {
  return [work = std::move(work), options](DataFlowPtr flow) {
    auto run = runner_for(*flow, work, options);
    return parallel(std::move(flow), std::move(run), options);
  };
}

Stage detail::map_and_batch_stage(MapWork work, int64_t size, bool remainder,
                                  ParallelMapOptions options) {
  options.capacity = capacity_of(options.name, size, options.capacity);
  return [work = std::move(work), size, remainder, options](DataFlowPtr flow) -> DataFlowPtr {
    auto run = runner_for(*flow, work, options);
    if (!run->keeps_all()) {
      return parallel(std::move(flow), std::move(run), options) |
             batch(size, {.remainder = remainder});
    }
    return std::make_unique<MapAndBatch>(std::move(flow), std::move(run), size, remainder,
                                         std::nullopt, options_for(options));
  };
}

Stage fill_batch(FilledComponent component, FillFunction fill, int64_t size,
                 MapAndBatchOptions options) {
  const std::string name = options.name.empty() ? "fill_batch" : options.name;
  TP_CHECK(fill != nullptr, name, "the function is empty. Pass one that fills a row.");
  const ParallelMapOptions parallel_options{.threads = options.threads,
                                            .capacity = capacity_of(name, size, options.capacity),
                                            .on_error = options.on_error,
                                            .seed = options.seed,
                                            .name = name};
  if (options.on_error == OnError::kSkip) {
    return filled_apart(std::move(component), std::move(fill), size, options.remainder,
                        parallel_options);
  }
  const detail::MapWork work{[fill = std::move(fill)](DataPoint point, Rng& rng) {
    at::Tensor row = std::move(point.back());
    point.erase(point.end() - 1);
    return std::optional(fill(std::move(point), rng, row));
  }};
  return [=, remainder = options.remainder](DataFlowPtr flow) -> DataFlowPtr {
    auto run = runner_for(*flow, work, parallel_options);
    return std::make_unique<MapAndBatch>(std::move(flow), std::move(run), size, remainder,
                                         component, options_for(parallel_options));
  };
}

}  // namespace tensorpack
