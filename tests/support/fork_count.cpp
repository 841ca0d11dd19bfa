// SPDX-License-Identifier: Apache-2.0
// Stands before the GOMP_parallel() of the OpenMP runtime, by which libtorch forks, too: what
// counts is who calls.
#include "tests/support/fork_count.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

namespace tensorpack {
namespace {

std::atomic<bool> is_counting = false;
std::atomic<size_t> most_threads = 1;

// One fork: its region, and the threads that ran it.
struct Fork {
  void (*region)(void*);
  void* data;
  std::mutex mutex = {};
  std::set<std::thread::id> threads = {};
};

void run_region(void* data) {
  auto& fork = *static_cast<Fork*>(data);
  {
    const std::lock_guard lock(fork.mutex);
    fork.threads.insert(std::this_thread::get_id());
  }
  fork.region(fork.data);
}

void* object_of(const void* address) {
  Dl_info info{};
  return dladdr(address, &info) != 0 ? info.dli_fbase : nullptr;
}

}  // namespace

size_t threads_forked_by(const std::function<void()>& work) {
  most_threads = 1;
  is_counting = true;
  work();
  is_counting = false;
  return most_threads;
}

}  // namespace tensorpack

extern "C" [[gnu::visibility("default")]] void GOMP_parallel(void (*region)(void*), void* data,
                                                             unsigned threads, unsigned flags) {
  using namespace tensorpack;
  static const auto fork =
      reinterpret_cast<decltype(&GOMP_parallel)>(dlsym(RTLD_NEXT, "GOMP_parallel"));
  const bool is_ours = object_of(__builtin_return_address(0)) ==
                       object_of(reinterpret_cast<const void*>(&threads_forked_by));
  if (!is_counting || !is_ours) return fork(region, data, threads, flags);
  Fork counted{region, data};
  fork(&run_region, &counted, threads, flags);
  most_threads = std::max(most_threads.load(), counted.threads.size());
}
