// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/input_feeder.h"

#include <atomic>
#include <deque>
#include <mutex>

#include "tensorpack/utils/timer.h"

namespace tensorpack {

struct InputFeeder::Source {
  explicit Source(std::function<std::optional<Batch>()> function) : next(std::move(function)) {}

  std::mutex waiting;  // held by the thread that waits for the source
  const std::function<std::optional<Batch>()> next;
  std::atomic<double> seconds_waited = 0;
  std::mutex mutex;  // of the rest, which does not wait for the source
  std::deque<Batch> put_back;
};

InputFeeder::InputFeeder(std::function<std::optional<Batch>()> next)
    : source_(next ? std::make_shared<Source>(std::move(next)) : nullptr) {}

std::optional<InputFeeder::Batch> InputFeeder::next() const {
  const std::lock_guard one_at_a_time(source_->waiting);
  {
    const std::lock_guard lock(source_->mutex);
    if (!source_->put_back.empty()) {
      Batch batch = std::move(source_->put_back.front());
      source_->put_back.pop_front();
      return batch;
    }
  }
  const Timer timer;
  std::optional<Batch> batch = source_->next();
  source_->seconds_waited = source_->seconds_waited + timer.seconds();
  return batch;
}

void InputFeeder::put_back(Batch batch) const {
  const std::lock_guard lock(source_->mutex);
  source_->put_back.push_front(std::move(batch));
}

int64_t InputFeeder::batches_put_back() const {
  const std::lock_guard lock(source_->mutex);
  return static_cast<int64_t>(source_->put_back.size());
}

void InputFeeder::reset() const {
  const std::lock_guard lock(source_->mutex);
  source_->put_back.clear();
}

double InputFeeder::seconds_waited() const { return source_->seconds_waited; }

}  // namespace tensorpack
