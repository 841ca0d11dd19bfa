// SPDX-License-Identifier: Apache-2.0
// Waiting for other threads where it is usually short.
#pragma once

#include <atomic>
#include <chrono>

namespace tensorpack {

namespace detail {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

}  // namespace detail

/// Waits until `value` is no longer `old`, which somebody else changes and notifies of. Looks for
/// some time, because to be woken up takes longer than many things that are waited for, and then
/// sleeps, because the core may be needed for the very thing that is waited for.
template <typename T>
void spin_wait(const std::atomic<T>& value, T old) {
  using Clock = std::chrono::steady_clock;
  constexpr auto kLookFor = std::chrono::microseconds(50);
  const Clock::time_point until = Clock::now() + kLookFor;
  do {
    for (int i = 0; i < 32; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      detail::relax();
    }
  } while (Clock::now() < until);
  value.wait(old);
}

}  // namespace tensorpack
