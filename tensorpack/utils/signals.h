// SPDX-License-Identifier: Apache-2.0
// Ending a run on SIGINT (Ctrl-C) or SIGTERM without losing work.
#pragma once

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

/// While it lives, the first SIGINT or SIGTERM is only noted; a second one acts as if it were not
/// there. One at a time.
class [[nodiscard]] SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The signal that arrived, or 0.
  int received() const;
};

}  // namespace tensorpack
