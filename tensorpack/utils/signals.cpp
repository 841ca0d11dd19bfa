// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/signals.h"

#include <csignal>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

volatile std::sig_atomic_t received_signal = 0;
bool is_watching = false;
struct sigaction old_int, old_term;

// The default action comes back, so that a second signal ends a process that hangs.
void note_signal(int signal) {
  received_signal = signal;
  std::signal(signal, SIG_DFL);
}

}  // namespace

Interrupted::Interrupted(int signal)
    : signal_(signal), text_(signal == SIGINT ? "interrupted (SIGINT)" : "terminated (SIGTERM)") {}

SignalWatch::SignalWatch() {
  TP_ASSERT(!is_watching);
  is_watching = true;
  received_signal = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &old_int);
  sigaction(SIGTERM, &action, &old_term);
}

SignalWatch::~SignalWatch() {
  sigaction(SIGINT, &old_int, nullptr);
  sigaction(SIGTERM, &old_term, nullptr);
  is_watching = false;
}

int SignalWatch::received() const { return received_signal; }

}  // namespace tensorpack
