// SPDX-License-Identifier: Apache-2.0
// Ending a run on a signal without losing work.
#pragma once

#include <csignal>
#include <cstdint>
#include <exception>
#include <string>

namespace tensorpack {

/// Thrown out of a training that a signal ended, after everything was wound up.
class Interrupted : public std::exception {
 public:
  explicit Interrupted(int signal);
  const char* what() const noexcept override { return text_.c_str(); }
  int signal() const { return signal_; }
  /// 128 + the signal, as shells report it: 130 for Ctrl-C.
  int exit_status() const { return 128 + signal_; }

 private:
  int signal_;
  std::string text_;
};

/// The signal that asks for a checkpoint and does not end the training: schedulers can send it some
/// time before they end a job.
inline constexpr int kSignalToSave = SIGUSR1;

/// While it lives, the first SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR2 and SIGXCPU are only noted;
/// a second one of the same kind acts as if it were not there, so that a process that hangs can be
/// ended. (Not so SIGPIPE, as a process goes on writing while it ends, and SIGXCPU, which the
/// system repeats every second.) SIGUSR1 is noted each time. SIGXFSZ is ignored, so that a write to
/// a file that grew too large fails and says why.
///
/// There may be any number of them, on any threads, one inside another: a signal reaches all. What
/// handled the signals before comes back with the end of the last. SIGHUP and SIGPIPE that were
/// ignored stay so, as under nohup; SIGUSR1, SIGUSR2, SIGXCPU and SIGXFSZ that the program handles
/// or ignores remain its own.
class [[nodiscard]] SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The signal to end by that arrived, or 0. SIGINT counts only when there was no other: whoever
  /// sent one of the others wants what there is to be saved.
  int received() const;
  /// Whether SIGUSR1 arrived since this was asked last.
  bool take_request_to_save();

 private:
  int64_t saves_;  // that were asked for when it last looked
};

/// What received() of any watch says, and 0 when there is none: for code deep inside that waits for
/// something and should not wait for ever.
int pending_signal();

/// As pending_signal(), but after the last watch still the signal that it received, until there is
/// another watch: what an interrupted training leaves is destroyed then.
int ending_signal();

/// From now on as if this process had received the signal, by which others end together with it.
void adopt_signal(int signal);

/// For the rest of the process: SIGUSR1, which a scheduler may send between two trainings, and
/// SIGXFSZ, for a log that grew too large, end nothing. What the program handles or ignores stays
/// so, and processes that it starts do not inherit it.
void tolerate_signals_outside_of_training();

}  // namespace tensorpack
