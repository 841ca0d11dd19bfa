// SPDX-License-Identifier: Apache-2.0
// Seeing every operator that runs on a thread.
//
// Note [Watching below autograd]
// A boxed fallback on one dispatch key that sits below autograd and autocast and above the backends
// is called for every operator while a watch is open on the thread. What it sees is what the
// backends run: composite operators are decomposed, casts are explicit, and the backward pass
// appears as plain operators.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <memory>

namespace tensorpack {

/// Stands around the operators that run on a thread, and on autograd's threads on its behalf. What
/// a kernel calls inside is not seen.
class OperatorWatch : public c10::DebugInfoBase {
 public:
  /// Called in place of each operator, with its arguments on the stack; has it run by pass_on().
  virtual void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                   torch::jit::Stack* stack) = 0;

 protected:
  /// Runs the operator, seen by the watches that were opened before this one.
  void pass_on(const c10::OperatorHandle& op, c10::DispatchKeySet below,
               torch::jit::Stack* stack) const;

 private:
  friend class WatchScope;
  OperatorWatch* outer_ = nullptr;
};

/// While it lives, `watch` sees the operators of this thread. Scopes nest: the innermost watch is
/// called first.
class [[nodiscard]] WatchScope {
 public:
  explicit WatchScope(std::shared_ptr<OperatorWatch> watch);
  ~WatchScope();
  WatchScope(const WatchScope&) = delete;
  WatchScope& operator=(const WatchScope&) = delete;

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

/// Within OperatorWatch::run(): while it lives, watches see what the kernel calls, too.
class [[nodiscard]] WatchInside {
 public:
  WatchInside();
  ~WatchInside();
  WatchInside(const WatchInside&) = delete;
  WatchInside& operator=(const WatchInside&) = delete;
};

/// While it lives, no watch sees what this thread does.
class [[nodiscard]] Unwatched {
 public:
  Unwatched();
  ~Unwatched();
  Unwatched(const Unwatched&) = delete;
  Unwatched& operator=(const Unwatched&) = delete;

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

}  // namespace tensorpack
