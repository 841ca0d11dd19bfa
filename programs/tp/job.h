// SPDX-License-Identifier: Apache-2.0
// One attempt of a job: its ranks, from their start to the end of the last.
#pragma once

#include <chrono>
#include <vector>

#include "programs/tp/rank_process.h"

namespace tensorpack {

/// While it lives, signals wait to be read instead of ending the launcher.
class SignalReader {
 public:
  SignalReader();
  ~SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;

  int fd() const { return fd_; }
  /// The next signal that came, or 0.
  int next();

 private:
  int fd_;
};

struct JobEnd {
  /// Of the first rank that failed; 0 when none did.
  int status = 0;
  /// The signal that the launcher was sent, or 0.
  int signal = 0;
};

/// Runs the ranks side by side. When one fails, or a signal comes, which is passed on to all, the
/// others have `grace` to end by themselves.
JobEnd run_job(const std::vector<RankCommand>& commands, SignalReader& signals,
               std::chrono::milliseconds grace);

}  // namespace tensorpack
