// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/abandonable_threads.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>

#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/seed.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

struct AbandonableThreads::State {
  std::atomic<bool> stopping = false;
  std::mutex mutex;  // for what follows
  std::condition_variable has_ended;
  std::size_t ended = 0;
};

AbandonableThreads::AbandonableThreads(std::string name)
    : name_(std::move(name)), state_(std::make_shared<State>()) {}

AbandonableThreads::~AbandonableThreads() { end(); }

void AbandonableThreads::start(std::function<void()> body) {
  threads_.push_back(
      start_thread(name_, [state = state_, body = std::move(body), seed = SeedScope::current()] {
        const StopScope stop_scope(state->stopping);
        const SeedScope seed_scope(seed);
        body();
        const std::lock_guard lock(state->mutex);
        ++state->ended;
        state->has_ended.notify_all();
      }));
}

void AbandonableThreads::request_stop() { state_->stopping = true; }

bool AbandonableThreads::end() {
  request_stop();
  if (threads_.empty()) return !are_left_behind_;
  are_left_behind_ = !wait_for_end();
  if (are_left_behind_) logging::warning("{} still waits for its data: it is left behind.", name_);
  for (std::thread& thread : threads_) are_left_behind_ ? thread.detach() : thread.join();
  threads_.clear();
  return !are_left_behind_;
}

// False when a signal is to end the process: then a thread may never end. One that waits for
// another of these looks for signals a few times in a second, and does.
bool AbandonableThreads::wait_for_end() const {
  constexpr std::chrono::milliseconds kPatience{500};
  std::unique_lock lock(state_->mutex);
  const auto have_ended = [&] { return state_->ended == threads_.size(); };
  while (!state_->has_ended.wait_for(lock, kPatience, have_ended)) {
    if (ending_signal() != 0) return false;
  }
  return true;
}

}  // namespace tensorpack
