// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/hooks.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {

PeriodicRunHooks::PeriodicRunHooks(Owned<Callback> callback, int64_t every_k_steps)
    : ProxyCallback(std::move(callback)), every_k_steps_(every_k_steps) {
  TP_CHECK(every_k_steps > 0, "PeriodicRunHooks", "every_k_steps must be positive, got {}.",
           every_k_steps);
}

RunArgs PeriodicRunHooks::before_run(RunContext& context) {
  in_run_ = (global_step() + 1) % every_k_steps_ == 0;
  return in_run_ ? ProxyCallback::before_run(context) : RunArgs{};
}

void PeriodicRunHooks::after_run(RunContext& context, const FetchedValues& values) {
  if (in_run_) ProxyCallback::after_run(context, values);
}

HookToCallback::HookToCallback(Owned<Hook> hook) : hook_(std::move(hook)) {
  TP_CHECK(static_cast<bool>(hook_), "HookToCallback", "the hook is null. Pass one.");
  set_chief_only(false);
}

}  // namespace tensorpack
