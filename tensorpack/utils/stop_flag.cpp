// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/stop_flag.h"

#include <csignal>
#include <utility>

#include "tensorpack/utils/signals.h"

namespace tensorpack {
namespace {

thread_local const std::atomic<bool>* flag_of_thread = nullptr;
thread_local const std::function<int()>* decision_of_thread = nullptr;

}  // namespace

bool stop_requested() {
  return flag_of_thread != nullptr && flag_of_thread->load(std::memory_order_relaxed);
}

StopScope::StopScope(const std::atomic<bool>& flag)
    : outer_(std::exchange(flag_of_thread, &flag)) {}

StopScope::~StopScope() { flag_of_thread = outer_; }

int signal_to_give_up() {
  const int pending = pending_signal();
  if (decision_of_thread != nullptr) return pending == SIGINT ? pending : (*decision_of_thread)();
  return flag_of_thread != nullptr ? 0 : pending;
}

int PatienceAfterSignal::signal_when_over() { return signal_when_over(pending_signal()); }

int PatienceAfterSignal::signal_when_over(int signal) {
  if (signal == 0) return 0;
  const auto now = std::chrono::steady_clock::now();
  if (!since_) since_ = now;
  return now >= *since_ + patience_ ? signal : 0;
}

GiveUpScope::GiveUpScope(std::function<int()> decide)
    : decide_(std::move(decide)), outer_(std::exchange(decision_of_thread, &decide_)) {}

GiveUpScope::GiveUpScope(PatienceAfterSignal patience)
    : GiveUpScope([patience]() mutable { return patience.signal_when_over(); }) {}

GiveUpScope::~GiveUpScope() { decision_of_thread = outer_; }

}  // namespace tensorpack
