// SPDX-License-Identifier: Apache-2.0
// How code deep inside learns that it is to end what it waits for.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>

namespace tensorpack {

/// Whether the owner of the calling thread wants it to end, or the owner of that one, and so on.
/// For code that waits for something that may never come.
bool stop_requested();

/// While it lives, stop_requested() of the calling thread says what `flag` says.
class [[nodiscard]] StopScope {
 public:
  explicit StopScope(const std::atomic<bool>& flag);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

/// The signal by which code of the calling thread that waits for data is to give up, or 0. SIGINT
/// counts at once; about others a GiveUpScope decides, if one lives on the thread. Without one it
/// is pending_signal(), but 0 on a thread that has an owner: the owner gives up, and ends it.
int signal_to_give_up();

/// How long something goes on after a signal that is to end it.
class PatienceAfterSignal {
 public:
  explicit PatienceAfterSignal(std::chrono::milliseconds patience) : patience_(patience) {}

  /// The signal that has been pending for that long, or 0; asked now and then.
  int signal_when_over();
  /// The same for a signal of which another process has told.
  int signal_when_over(int signal);

 private:
  std::chrono::milliseconds patience_;
  std::optional<std::chrono::steady_clock::time_point> since_{};
};

/// While it lives, signal_to_give_up() of the calling thread asks it.
class [[nodiscard]] GiveUpScope {
 public:
  /// Also asked when this process received no signal.
  explicit GiveUpScope(std::function<int()> decide);
  explicit GiveUpScope(PatienceAfterSignal patience);
  ~GiveUpScope();
  GiveUpScope(const GiveUpScope&) = delete;
  GiveUpScope& operator=(const GiveUpScope&) = delete;

 private:
  std::function<int()> decide_;
  const std::function<int()>* outer_;
};

}  // namespace tensorpack
