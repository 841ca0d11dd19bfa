// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

namespace tensorpack {
namespace {

void note_signal(int signal);
void note_request_to_save(int signal);

enum class Unless { kNever, kIgnored, kHandledOrIgnored };

struct Watched {
  int signal;
  Unless unless;     // by the program, before
  const char* text;  // of who ends by it
  void (*handler)(int) = note_signal;
};

const std::array<Watched, 8> kWatched = {{
    {SIGINT, Unless::kNever, "interrupted (SIGINT)"},
    {SIGTERM, Unless::kNever, "terminated (SIGTERM)"},
    {SIGHUP, Unless::kIgnored, "terminated (SIGHUP)"},
    {SIGPIPE, Unless::kIgnored, "terminated (SIGPIPE: nobody reads its output)"},
    {SIGUSR2, Unless::kHandledOrIgnored, "terminated (SIGUSR2)"},
    {SIGXCPU, Unless::kHandledOrIgnored, "terminated (SIGXCPU: its limit of CPU time is reached)"},
    {kSignalToSave, Unless::kHandledOrIgnored, "", note_request_to_save},
    {SIGXFSZ, Unless::kHandledOrIgnored, "", SIG_IGN},
}};

// Written by the handlers, which may run on any thread at any time.
std::atomic<int> received_signal = 0;
std::atomic<int> last_signal = 0;  // of the watch before
std::atomic<int64_t> requests_to_save = 0;
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

std::mutex mutex;
int watches = 0;
std::array<struct sigaction, kWatched.size()> old_actions;

// The default action comes back, so that a second signal ends a process that hangs. Not so for a
// closed pipe and for CPU time, which are signalled again while the process ends.
void note_signal(int signal) {
  const int old_errno = errno;
  int none = 0;
  if (!received_signal.compare_exchange_strong(none, signal) && signal != SIGINT) {
    int interrupt = SIGINT;
    received_signal.compare_exchange_strong(interrupt, signal);
  }
  const bool is_repeated = signal == SIGPIPE || signal == SIGXCPU;
  std::signal(signal, is_repeated ? SIG_IGN : SIG_DFL);
  errno = old_errno;
}

void note_request_to_save(int /*signal*/) { ++requests_to_save; }

void tolerate(int /*signal*/) {}

void install(size_t i) {
  const Watched& watched = kWatched[i];
  sigaction(watched.signal, nullptr, &old_actions[i]);
  const bool is_ignored = old_actions[i].sa_handler == SIG_IGN;
  const bool is_handled =
      !is_ignored && old_actions[i].sa_handler != SIG_DFL && old_actions[i].sa_handler != tolerate;
  if (watched.unless != Unless::kNever && is_ignored) return;
  if (watched.unless == Unless::kHandledOrIgnored && is_handled) return;
  struct sigaction action {};
  action.sa_handler = watched.handler;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(watched.signal, &action, nullptr);
}

}  // namespace

Interrupted::Interrupted(int signal) : signal_(signal), text_("ended by a signal") {
  for (const Watched& watched : kWatched) {
    if (watched.signal == signal) text_ = watched.text;
  }
}

SignalWatch::SignalWatch() : saves_(requests_to_save) {
  const std::lock_guard lock(mutex);
  if (watches++ > 0) return;
  last_signal = 0;
  for (size_t i = 0; i < kWatched.size(); ++i) install(i);
}

SignalWatch::~SignalWatch() {
  const std::lock_guard lock(mutex);
  if (--watches > 0) return;
  for (size_t i = 0; i < kWatched.size(); ++i) {
    sigaction(kWatched[i].signal, &old_actions[i], nullptr);
  }
  last_signal = received_signal.exchange(0);
}

int SignalWatch::received() const { return pending_signal(); }

bool SignalWatch::take_request_to_save() {
  const int64_t requests = requests_to_save.load(std::memory_order_relaxed);
  return std::exchange(saves_, requests) != requests;
}

int pending_signal() { return received_signal.load(std::memory_order_relaxed); }

int ending_signal() {
  const int pending = pending_signal();
  return pending != 0 ? pending : last_signal.load(std::memory_order_relaxed);
}

void adopt_signal(int signal) {
  int none = 0;
  received_signal.compare_exchange_strong(none, signal);
}

void tolerate_signals_outside_of_training() {
  const std::lock_guard lock(mutex);
  for (const int signal : {kSignalToSave, SIGXFSZ}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_DFL) continue;
    action = {};
    action.sa_handler = tolerate;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace tensorpack
