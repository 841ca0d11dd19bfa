// SPDX-License-Identifier: Apache-2.0
// Training on a machine that others use, too.
//
// Note [Waiting on a shared machine]
// OpenMP's threads wait for each other by spinning for milliseconds, which is the fastest way as
// long as all of them run. Where other programs have taken a core, a thread spins for one that
// waits for that core: a step can take ten times as long as on one thread. Fewer threads would
// help, but add sums up in another order: a run could not be repeated. So their number stays, and
// while cores are fought for they go to sleep instead, which changes no bit of the result.
#pragma once

#include <chrono>
#include <memory>

namespace tensorpack {

/// While it lives, OpenMP's threads sleep when they wait for each other. Has no effect with another
/// OpenMP than GCC's, which libtorch brings.
class [[nodiscard]] PassiveWaiting {
 public:
  PassiveWaiting();
  ~PassiveWaiting();
  PassiveWaiting(const PassiveWaiting&) = delete;
  PassiveWaiting& operator=(const PassiveWaiting&) = delete;

 private:
  struct Team;
  std::unique_ptr<Team> team_;
};

/// Looks, when it is made and now and then, how long the calling thread had to wait for a core, and
/// has OpenMP's threads wait passively while that is long. Leaves them alone if OMP_WAIT_POLICY or
/// GOMP_SPINCOUNT is set. For use by one thread.
class SharedMachine {
 public:
  SharedMachine();
  ~SharedMachine();
  SharedMachine(const SharedMachine&) = delete;
  SharedMachine& operator=(const SharedMachine&) = delete;

  /// To be called after every step; does something once a second.
  void look();
  bool waits_passively() const { return passive_ != nullptr; }

 private:
  void measure();

  bool is_watched_;
  bool is_told_ = false;
  std::chrono::nanoseconds last_look_{0};
  std::chrono::nanoseconds on_core_{0};  // of this thread, at the last look
  std::chrono::nanoseconds waited_{0};   // for a core
  std::unique_ptr<PassiveWaiting> passive_;
};

namespace detail {

/// Whether threads should wait passively, given for which part of the time in which it could have
/// run the training thread waited for a core, and whether they do now.
bool should_wait_passively(double share_waited, bool is_passive);

}  // namespace detail

}  // namespace tensorpack
