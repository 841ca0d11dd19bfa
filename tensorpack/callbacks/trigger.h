// SPDX-License-Identifier: Apache-2.0
// Callbacks at other times than every epoch.
//
//   PeriodicTrigger(ModelSaver(), {.every_k_steps = 1000, .every_k_epochs = 1})
#pragma once

#include <cstdint>
#include <functional>

#include "tensorpack/callbacks/proxy_callback.h"

namespace tensorpack {

struct PeriodicTriggerOptions {
  /// Triggers after steps whose global_step is a multiple of it; 0 does not.
  int64_t every_k_steps = 0;
  /// Triggers after epochs whose number is a multiple of it; 0 does not.
  int64_t every_k_epochs = 0;
  /// Triggers once before training.
  bool before_train = false;
};

/// Calls trigger() of a callback when due, in place of its trigger_epoch(). All other methods are
/// handed on. Throws Error when it would never be due.
class PeriodicTrigger final : public ProxyCallback {
 public:
  PeriodicTrigger(Owned<Callback> callback, PeriodicTriggerOptions options);

  void before_train() override;
  void trigger_step() override;
  void trigger_epoch() override;

 private:
  PeriodicTriggerOptions options_;
};

/// Decides from the state of the loop; gets the enclosing callback.
using CallbackPredicate = std::function<bool(const Callback&)>;

/// Hands on what happens in epochs and steps only while `predicate` is true. It is asked before
/// every call; for a hooked run once, before it. setup_graph(), before_train() and after_train()
/// are always handed on.
class EnableCallbackIf : public ProxyCallback {
 public:
  EnableCallbackIf(Owned<Callback> callback, CallbackPredicate predicate);

  void before_epoch() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void trigger_step() override;
  void after_epoch() override;
  void trigger_epoch() override;

 private:
  CallbackPredicate predicate_;
  bool in_run_ = false;
};

struct PeriodicCallbackOptions {
  /// 0 when steps do not count.
  int64_t every_k_steps = 0;
  /// 0 when epochs do not count. With it, the end of the last epoch is always included.
  int64_t every_k_epochs = 0;
};

/// Enables a callback only in steps and epochs whose numbers are multiples of a period: makes it
/// rarer, never more frequent.
class PeriodicCallback final : public EnableCallbackIf {
 public:
  PeriodicCallback(Owned<Callback> callback, PeriodicCallbackOptions options);
};

}  // namespace tensorpack
