// SPDX-License-Identifier: Apache-2.0
// Waiting on the host for what a device does, without waiting for ever.
#pragma once

#include <c10/core/Event.h>

#include <chrono>
#include <functional>

namespace tensorpack {

/// While it lives, the thread that made it calls `check` now and then while it waits for a device,
/// and says for how long it has waited so far. The check may throw, which ends the waiting: where a
/// device waits for others, as in a collective, somebody has to ask whether they will come.
class [[nodiscard]] WaitCheck {
 public:
  using Check = std::function<void(std::chrono::milliseconds waited)>;
  explicit WaitCheck(Check check);
  ~WaitCheck();
  WaitCheck(const WaitCheck&) = delete;
  WaitCheck& operator=(const WaitCheck&) = delete;
};

/// Waits on this thread until the work before the event is done.
void wait_for(const c10::Event& event);

/// Waits until `is_done()`, and calls the checks of this thread meanwhile.
void wait_until(const std::function<bool()>& is_done);

}  // namespace tensorpack
