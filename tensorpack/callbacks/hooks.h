// SPDX-License-Identifier: Apache-2.0
// Callbacks that are about hooked runs alone.
#pragma once

#include <cstdint>

#include "tensorpack/callbacks/proxy_callback.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// Lets a callback join only hooked runs after which global_step is a multiple of a number: to have
/// ProcessTensors look at every hundredth step. All else is handed on.
class PeriodicRunHooks final : public ProxyCallback {
 public:
  PeriodicRunHooks(Owned<Callback> callback, int64_t every_k_steps);

  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;

 private:
  int64_t every_k_steps_;
  bool in_run_ = false;
};

/// Makes a callback of a Hook. (A callback is a Hook: the other way needs nothing.)
class HookToCallback final : public Callback {
 public:
  explicit HookToCallback(Owned<Hook> hook);

  RunArgs before_run(RunContext& context) override { return hook_->before_run(context); }
  void after_run(RunContext& context, const FetchedValues& values) override {
    hook_->after_run(context, values);
  }

 private:
  Owned<Hook> hook_;
};

}  // namespace tensorpack
