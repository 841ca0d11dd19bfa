// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>

namespace tensorpack {
namespace {

struct Watched {
  int signal;
  const char* text;
  bool may_be_ignored;
};

constexpr std::array<Watched, 4> kWatched = {{
    {SIGINT, "interrupted (SIGINT)", false},
    {SIGTERM, "terminated (SIGTERM)", false},
    {SIGHUP, "terminated (SIGHUP)", true},
    {SIGPIPE, "terminated (SIGPIPE: nobody reads its output)", true},
}};

// Written by the handler, which may run on any thread at any time.
std::atomic<int> received_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

std::mutex mutex;
int watches = 0;
std::array<struct sigaction, kWatched.size()> old_actions;

// The default action comes back, so that a second signal ends a process that hangs. Not so for a
// closed pipe: every line that is still logged would be the second.
void note_signal(int signal) {
  const int old_errno = errno;
  int none = 0;
  if (!received_signal.compare_exchange_strong(none, signal) && signal != SIGINT) {
    int interrupt = SIGINT;
    received_signal.compare_exchange_strong(interrupt, signal);
  }
  std::signal(signal, signal == SIGPIPE ? SIG_IGN : SIG_DFL);
  errno = old_errno;
}

void install(size_t i) {
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(kWatched[i].signal, &action, &old_actions[i]);
  if (kWatched[i].may_be_ignored && old_actions[i].sa_handler == SIG_IGN) {
    sigaction(kWatched[i].signal, &old_actions[i], nullptr);
  }
}

}  // namespace

Interrupted::Interrupted(int signal) : signal_(signal), text_("ended by a signal") {
  for (const Watched& watched : kWatched) {
    if (watched.signal == signal) text_ = watched.text;
  }
}

SignalWatch::SignalWatch() {
  const std::lock_guard lock(mutex);
  if (watches++ > 0) return;
  for (size_t i = 0; i < kWatched.size(); ++i) install(i);
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(mutex);
  if (--watches > 0) return;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i].signal, &old_actions[i], nullptr);
  }
  received_signal = 0;
}

int SignalWatch::received() const { return pending_signal(); }

int pending_signal() { return received_signal.load(std::memory_order_relaxed); }

}  // namespace tensorpack
