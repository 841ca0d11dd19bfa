// SPDX-License-Identifier: Apache-2.0
// Stands before the pthread_create() of the system: a limit of the system itself does not hold for
// root, and counts what others have.
#include "tests/support/thread_limit.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <limits>

namespace tensorpack {
namespace {

constexpr int kNoLimit = std::numeric_limits<int>::max();
std::atomic<int> threads_left = kNoLimit;

}  // namespace

ThreadLimit::ThreadLimit(int more) { threads_left = more; }
ThreadLimit::~ThreadLimit() { threads_left = kNoLimit; }

}  // namespace tensorpack

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*body)(void*), void* argument) noexcept {
  using tensorpack::threads_left;
  static const auto start =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left != tensorpack::kNoLimit && threads_left-- <= 0) return EAGAIN;
  return start(thread, attributes, body, argument);
}
