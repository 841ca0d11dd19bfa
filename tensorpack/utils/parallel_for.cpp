// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/parallel_for.h"

#include <ATen/Parallel.h>
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "tensorpack/utils/worker_team.h"

namespace tensorpack {
namespace {

// What the threads of one call share.
class Loop {
 public:
  Loop(int64_t count, c10::function_ref<void(int64_t, int64_t)> work)
      : count_(count), work_(work) {}

  // The range of one thread of `threads`. Threads beyond `count_` have none.
  void run_range(int64_t thread, int64_t threads) noexcept {
    const int64_t ranges = std::min(count_, threads);
    if (thread >= ranges) return;
    try {
      work_(count_ * thread / ranges, count_ * (thread + 1) / ranges);
    } catch (...) {
      if (!has_failed_.exchange(true)) failure_ = std::current_exception();
    }
  }

  // Once all threads have returned.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  int64_t count_;
  c10::function_ref<void(int64_t, int64_t)> work_;
  std::atomic<bool> has_failed_ = false;
  std::exception_ptr failure_;
};

// The OpenMP runtime that libtorch uses. at::parallel_for() is inline and forks only in code that
// is compiled with -fopenmp, which would link the runtime of whichever compiler is used: a second
// one, with threads of its own, where that is not libtorch's. libgomp and LLVM's libomp both
// export these functions.
struct OpenMp {
  void (*fork)(void (*region)(void*), void* data, unsigned threads, unsigned flags);
  int (*thread_number)();
  int (*team_size)();
};

template <typename Function>
void find(const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

OpenMp find_openmp() {
  OpenMp openmp{};
  find("GOMP_parallel", openmp.fork);
  find("omp_get_thread_num", openmp.thread_number);
  find("omp_get_num_threads", openmp.team_size);
  return openmp;
}

const OpenMp& openmp() {
  static const OpenMp found = find_openmp();
  return found;
}

#ifdef __SANITIZE_THREAD__
// The sanitizer does not see how OpenMP's threads wait for each other.
void run(Loop& loop, int threads) {
  WorkerTeam team("parallel_for", static_cast<size_t>(threads));
  team.run([&](size_t thread) { loop.run_range(static_cast<int64_t>(thread), threads); });
}
#else
void run(Loop& loop, int /*threads*/) {
  // 0: as many as libtorch uses. libgomp restarts its threads for a team of another size.
  openmp().fork(
      [](void* data) {
        static_cast<Loop*>(data)->run_range(openmp().thread_number(), openmp().team_size());
      },
      &loop, 0, 0);
}
#endif

bool has_openmp() {
  return openmp().fork != nullptr && openmp().thread_number != nullptr &&
         openmp().team_size != nullptr;
}

}  // namespace

void parallel_for(int64_t count, c10::function_ref<void(int64_t, int64_t)> work) {
  if (count <= 0) return;
  const int threads = at::get_num_threads();
  if (count == 1 || threads == 1 || at::in_parallel_region()) return work(0, count);
  // A libtorch that was built with threads of its own, and not with OpenMP, forks here.
  if (!has_openmp()) return at::parallel_for(0, count, 1, work);
  Loop loop(count, work);
  run(loop, threads);
  loop.rethrow();
}

}  // namespace tensorpack
