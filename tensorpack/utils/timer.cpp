// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/timer.h"

#include <cstdlib>
#include <exception>
#include <mutex>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

void Timer::reset() { *this = Timer(); }

void Timer::pause() {
  if (paused_) return;
  before_ += Clock::now() - start_;
  paused_ = true;
}

void Timer::resume() {
  if (!paused_) return;
  start_ = Clock::now();
  paused_ = false;
}

double Timer::seconds() const {
  const Clock::duration total = paused_ ? before_ : before_ + (Clock::now() - start_);
  return std::chrono::duration<double>(total).count();
}

TimedOperation::TimedOperation(std::string message, TimedOperationOptions options,
                               logging::Location where)
    : message_(std::move(message)), where_(where), exceptions_(std::uncaught_exceptions()) {
  if (options.log_start) logging::write(logging::Level::kInfo, where_, "{} started ...", message_);
}

TimedOperation::~TimedOperation() {
  const bool failed = std::uncaught_exceptions() > exceptions_;
  logging::write(logging::Level::kInfo, where_, "{} {}, time: {}.", message_,
                 failed ? "failed" : "finished", humanize_time(timer_.seconds()));
}

namespace {

struct Totals {
  std::mutex mutex;
  std::map<std::string, TotalTimer::Total> by_message;
};

void log_totals() {
  for (const auto& [message, total] : TotalTimer::totals()) {
    logging::info("Total time of {}: {:.2f} sec, {}, {:.3g} sec/time", message, total.seconds,
                  counted(total.count, "time"), total.seconds / static_cast<double>(total.count));
  }
}

Totals& all_totals() {
  // Never destroyed: it is read when the process exits.
  static auto* totals = [] {
    std::atexit(log_totals);
    return new Totals;
  }();
  return *totals;
}

}  // namespace

TotalTimer::TotalTimer(std::string message) : message_(std::move(message)) {}

TotalTimer::~TotalTimer() {
  const double seconds = timer_.seconds();
  const std::lock_guard lock(all_totals().mutex);
  Total& total = all_totals().by_message[message_];
  total.seconds += seconds;
  ++total.count;
}

std::map<std::string, TotalTimer::Total> TotalTimer::totals() {
  const std::lock_guard lock(all_totals().mutex);
  return all_totals().by_message;
}

IterSpeedCounter::IterSpeedCounter(std::int64_t print_every, std::string name)
    : print_every_(print_every), name_(std::move(name)) {
  TP_CHECK(print_every > 0, "IterSpeedCounter",
           "print_every must be positive, got {}. Pass 1 or more.", print_every);
}

void IterSpeedCounter::operator()(logging::Location where) {
  if (count_ == 0) timer_.reset();
  if (++count_ % print_every_ != 0) return;
  const double seconds = timer_.seconds();
  logging::write(logging::Level::kInfo, where, "{}: {:.2f} sec, {}, {:.3g} sec/time", name_,
                 seconds, counted(count_, "time"), seconds / static_cast<double>(count_));
}

}  // namespace tensorpack
