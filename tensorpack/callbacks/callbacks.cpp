// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/callbacks.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {

std::vector<Hook*> Callbacks::hooks() {
  std::vector<Hook*> hooks;
  for (Callback& callback : callbacks_) hooks.push_back(&callback);
  return hooks;
}

void Callbacks::setup_graph(TrainerBase& trainer) {
  for (Callback& callback : callbacks_) callback.attach(trainer);
  for (Callback& callback : callbacks_) callback.setup_graph();
}

void Callbacks::before_train() {
  for (Callback& callback : callbacks_) callback.before_train();
}

void Callbacks::before_epoch() {
  for (Callback& callback : callbacks_) callback.before_epoch();
}

void Callbacks::trigger_step() {
  for (Callback& callback : callbacks_) callback.trigger_step();
}

void Callbacks::after_epoch() {
  for (Callback& callback : callbacks_) callback.after_epoch();
}

void Callbacks::trigger_epoch() {
  std::exception_ptr stop;
  std::vector<std::pair<std::string, double>> times;
  for (Callback& callback : callbacks_) {
    const Timer timer;
    try {
      callback.trigger_epoch();
    } catch (const StopTraining&) {
      if (!stop) stop = std::current_exception();
    }
    times.emplace_back(callback.name(), timer.seconds());
  }
  const std::string slow = detail::describe_callback_times(times);
  if (!slow.empty()) log::info("{}", slow);
  if (stop) std::rethrow_exception(stop);
}

std::exception_ptr Callbacks::after_train() noexcept {
  std::exception_ptr first;
  for (Callback& callback : callbacks_) {
    try {
      callback.after_train();
    } catch (...) {
      if (!first) first = std::current_exception();
      try {
        throw;
      } catch (const std::exception& error) {
        log::error("{} failed in after_train: {}", callback.name(), describe(error));
      } catch (...) {
        log::error("{} failed in after_train.", callback.name());
      }
    }
  }
  return first;
}

std::string detail::describe_callback_times(
    const std::vector<std::pair<std::string, double>>& times) {
  double total = 0;
  for (const auto& [name, seconds] : times) total += seconds;
  if (total < 2) return "";
  std::vector<std::string> slow;
  for (const auto& [name, seconds] : times) {
    if (seconds > 1 && seconds > 0.3 * total) slow.push_back(name + ": " + humanize_time(seconds));
  }
  const std::string text = "Callbacks took " + humanize_time(total) + " in total";
  return slow.empty() ? text + "." : text + "; " + join(slow, "; ") + ".";
}

}  // namespace tensorpack
