// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/session_run_timeout.h"

#include <condition_variable>
#include <mutex>
#include <optional>

#include "tensorpack/session/run_activity.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

// A thread that waits for the end of each run, but not for ever.
class SessionRunTimeout::Watchdog {
 public:
  explicit Watchdog(std::chrono::duration<double> timeout)
      : timeout_(timeout),
        thread_("timeout", [this](const std::stop_token& stop) { watch(stop); }) {}

  void start(int64_t step) {
    const std::lock_guard lock(mutex_);
    start_ = Clock::now();
    step_ = step;
    if (is_idle_) changed_.notify_all();
  }

  // The thread need not wake up: it finds out when it would have said something.
  void finish() {
    const std::lock_guard lock(mutex_);
    start_.reset();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      is_idle_ = true;
      if (!changed_.wait(lock, stop, [this] { return start_.has_value(); })) return;
      is_idle_ = false;
      const Clock::time_point run = *start_;
      for (auto allowed = timeout_;; allowed *= 2) {
        const auto deadline = run + std::chrono::duration_cast<Clock::duration>(allowed);
        changed_.wait_until(lock, stop, deadline, [] { return false; });
        if (stop.stop_requested() || start_ != run) break;
        logging::error("[SessionRunTimeout] step {} has taken {} so far. {}", step_ + 1,
                       humanize_time(allowed.count()), describe_run_activity());
      }
    }
  }

  const std::chrono::duration<double> timeout_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<Clock::time_point> start_;  // of the run in progress
  int64_t step_ = 0;
  bool is_idle_ = false;    // waits for a run to begin
  StoppableThread thread_;  // the last: it uses the others
};

SessionRunTimeout::SessionRunTimeout(std::chrono::duration<double> timeout) : timeout_(timeout) {
  TP_CHECK(timeout.count() > 0, "SessionRunTimeout", "the time must be positive, got {} seconds.",
           timeout.count());
  set_chief_only(false);
}

SessionRunTimeout::~SessionRunTimeout() = default;
SessionRunTimeout::SessionRunTimeout(SessionRunTimeout&&) noexcept = default;
SessionRunTimeout& SessionRunTimeout::operator=(SessionRunTimeout&&) noexcept = default;

void SessionRunTimeout::before_train() { watchdog_ = std::make_unique<Watchdog>(timeout_); }

RunArgs SessionRunTimeout::before_run(RunContext&) {
  watchdog_->start(global_step());
  return {};
}

void SessionRunTimeout::after_run(RunContext&, const FetchedValues&) { watchdog_->finish(); }

void SessionRunTimeout::after_train() { watchdog_.reset(); }

}  // namespace tensorpack
