// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/trigger.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

void check_periods(const char* where, int64_t steps, int64_t epochs, bool otherwise_due) {
  TP_CHECK(steps >= 0 && epochs >= 0, where,
           "periods must not be negative, got every_k_steps = {} and every_k_epochs = {}. Leave "
           "out what does not count.",
           steps, epochs);
  TP_CHECK(steps > 0 || epochs > 0 || otherwise_due, where,
           "it would never be due. Set every_k_steps or every_k_epochs.");
}

bool is_due(int64_t number, int64_t period) { return period > 0 && number % period == 0; }

}  // namespace

PeriodicTrigger::PeriodicTrigger(Owned<Callback> callback, PeriodicTriggerOptions options)
    : ProxyCallback(std::move(callback)), options_(options) {
  check_periods("PeriodicTrigger", options.every_k_steps, options.every_k_epochs,
                options.before_train);
}

void PeriodicTrigger::before_train() {
  ProxyCallback::before_train();
  if (options_.before_train) trigger();
}

void PeriodicTrigger::trigger_step() {
  ProxyCallback::trigger_step();
  if (is_due(global_step(), options_.every_k_steps)) trigger();
}

void PeriodicTrigger::trigger_epoch() {
  if (is_due(epoch_num(), options_.every_k_epochs)) trigger();
}

EnableCallbackIf::EnableCallbackIf(Owned<Callback> callback, CallbackPredicate predicate)
    : ProxyCallback(std::move(callback)), predicate_(std::move(predicate)) {
  TP_CHECK(predicate_ != nullptr, "EnableCallbackIf", "the predicate is empty. Pass a function.");
}

void EnableCallbackIf::before_epoch() {
  if (predicate_(*this)) ProxyCallback::before_epoch();
}

RunArgs EnableCallbackIf::before_run(RunContext& context) {
  in_run_ = predicate_(*this);
  return in_run_ ? ProxyCallback::before_run(context) : RunArgs{};
}

void EnableCallbackIf::after_run(RunContext& context, const FetchedValues& values) {
  if (in_run_) ProxyCallback::after_run(context, values);
}

void EnableCallbackIf::trigger_step() {
  if (predicate_(*this)) ProxyCallback::trigger_step();
}

void EnableCallbackIf::after_epoch() {
  if (predicate_(*this)) ProxyCallback::after_epoch();
}

void EnableCallbackIf::trigger_epoch() {
  if (predicate_(*this)) ProxyCallback::trigger_epoch();
}

PeriodicCallback::PeriodicCallback(Owned<Callback> callback, PeriodicCallbackOptions options)
    : EnableCallbackIf(std::move(callback), [options](const Callback& self) {
        const LoopState& loop = self.trainer().loop();
        const bool is_end = loop.epoch_num == loop.max_epoch && loop.is_last_step_of_epoch();
        return is_due(loop.global_step, options.every_k_steps) ||
               is_due(loop.epoch_num, options.every_k_epochs) ||
               (is_end && options.every_k_epochs > 0);
      }) {
  check_periods("PeriodicCallback", options.every_k_steps, options.every_k_epochs, false);
}

}  // namespace tensorpack
