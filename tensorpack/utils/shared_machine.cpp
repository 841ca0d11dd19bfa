// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/shared_machine.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

using std::chrono::nanoseconds;

constexpr std::chrono::seconds kBetweenLooks{1};

// The clock of the system's ticks: reading it costs a step nothing.
nanoseconds now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

struct ThreadTimes {
  nanoseconds on_core{0};
  nanoseconds waited{0};  // ready to run, while others had the core
};

// Of this thread, since it began; nullopt if the system does not tell.
std::optional<ThreadTimes> thread_times() {
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen("/proc/thread-self/schedstat", "r"),
                                             &std::fclose);
  unsigned long long on_core = 0;
  unsigned long long waited = 0;
  if (!file || std::fscanf(file.get(), "%llu %llu", &on_core, &waited) != 2) return std::nullopt;
  return ThreadTimes{nanoseconds(on_core), nanoseconds(waited)};
}

using RunTeam = void (*)(void (*)(void*), void*, unsigned, unsigned);

// Null unless the OpenMP at hand is GCC's; others have this entry for its sake.
RunTeam gcc_openmp() {
  if (dlsym(RTLD_DEFAULT, "kmp_set_blocktime") != nullptr) return nullptr;
  return reinterpret_cast<RunTeam>(dlsym(RTLD_DEFAULT, "GOMP_parallel"));
}

}  // namespace

// GCC's OpenMP has no switch for it, but spins no more once it has more threads than there are
// cores. So there is a team of threads that do nothing.
struct PassiveWaiting::Team {
  Team(RunTeam run, unsigned size) {
    thread = std::thread([this, run, size] {
      set_thread_name("omp idle");
      run([](void* team) { static_cast<Team*>(team)->idle(); }, this, size, 0);
      left.load();  // after all of them, also for the thread sanitizer, which does not know OpenMP
    });
  }
  ~Team() {
    released = true;
    released.notify_all();
    thread.join();
  }

  void idle() {
    released.wait(false);
    ++left;
  }

  std::atomic<bool> released = false;
  std::atomic<int> left = 0;
  std::thread thread;
};

PassiveWaiting::PassiveWaiting() {
  const RunTeam run = gcc_openmp();
  if (run == nullptr) return;
  const int missing = std::max(0, affinity_cores() - at::get_num_threads());
  try {
    team_ = std::make_unique<Team>(run, static_cast<unsigned>(missing) + 2);
  } catch (const std::system_error& error) {
    logging::debug("No thread for passive waiting: {}", error.what());
  }
}

PassiveWaiting::~PassiveWaiting() = default;

SharedMachine::SharedMachine()
    : is_watched_(!env("OMP_WAIT_POLICY") && !env("GOMP_SPINCOUNT") && gcc_openmp() != nullptr),
      last_look_(now()) {
  if (is_watched_) measure();  // the first step takes longer than any other
}

SharedMachine::~SharedMachine() = default;

void SharedMachine::look() {
  if (!is_watched_ || now() - last_look_ < kBetweenLooks) return;
  last_look_ = now();
  measure();
}

void SharedMachine::measure() {
  const std::optional<ThreadTimes> times = thread_times();
  if (!times) return;
  const double waited = static_cast<double>((times->waited - waited_).count());
  const double on_core = static_cast<double>((times->on_core - on_core_).count());
  on_core_ = times->on_core;
  waited_ = times->waited;
  const double share = waited / std::max(1.0, waited + on_core);
  const bool wants_passive =
      at::get_num_threads() > 1 && detail::should_wait_passively(share, waits_passively());
  if (wants_passive == waits_passively()) return;
  passive_ = wants_passive ? std::make_unique<PassiveWaiting>() : nullptr;
  if (!std::exchange(is_told_, true)) {
    logging::info(
        "Other programs keep the cores busy: training waited for one {:.0f} % of the time. While "
        "that lasts, OpenMP's threads sleep when they wait for each other. Set OMP_NUM_THREADS to "
        "leave cores to the others.",
        100 * share);
  } else {
    logging::debug("Training waited for a core {:.0f} % of the time: OpenMP's threads {}.",
                   100 * share, wants_passive ? "sleep when they wait" : "spin when they wait");
  }
}

bool detail::should_wait_passively(double share_waited, bool is_passive) {
  // Two limits, so that it does not change to and fro.
  return share_waited > (is_passive ? 0.05 : 0.2);
}

}  // namespace tensorpack
