// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/thread.h"

#include <gmock/gmock.h>
#include <pthread.h>
#include <sched.h>

#include <array>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "tests/support/thread_limit.h"
#include "tests/support/throws.h"
#include "tests/utils/support.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

void fail(std::stop_token) { throw std::out_of_range("worker broke"); }

TEST(ThreadTest, LongNamesAreCut) {
  std::array<char, 32> name{};
  std::thread([&] {
    set_thread_name("a-very-long-thread-name");
    pthread_getname_np(pthread_self(), name.data(), name.size());
  }).join();
  EXPECT_STREQ(name.data(), "a-very-long-thr");
}

TEST(StoppableThreadTest, OneThatCannotBeStartedIsAnError) {
  const ThreadLimit limit(0);
  EXPECT_ERROR(StoppableThread("test", [](std::stop_token) {}),
               "[thread 'test'] it cannot be started: ");
}

TEST(ThreadTest, AffinityCountsAllowedCores) {
  EXPECT_GE(affinity_cores(), 1);
  int cores = 0;
  std::thread([&] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    cores = affinity_cores();
  }).join();
  EXPECT_EQ(cores, 1);
}

TEST(StoppableThreadTest, DestructionStopsAndJoins) {
  bool stopped = false;
  {
    const StoppableThread thread("worker", [&](std::stop_token stop) {
      std::mutex mutex;
      std::condition_variable_any never;
      std::unique_lock lock(mutex);
      never.wait(lock, stop, [] { return false; });
      stopped = stop.stop_requested();
    });
    EXPECT_FALSE(thread.finished());
  }
  EXPECT_TRUE(stopped);
}

TEST(StoppableThreadTest, ExceptionTravelsToTheOwner) {
  EXPECT_THAT(stdout_of([] {
                StoppableThread thread("worker", fail);
                thread.join();
                EXPECT_TRUE(thread.finished());
                EXPECT_THAT([&] { thread.rethrow_if_failed(); },
                            ThrowsMessage<std::out_of_range>(HasSubstr("worker broke")));
              }),
              IsEmpty());
}

TEST(StoppableThreadTest, FailureNobodyAskedForIsLogged) {
  EXPECT_THAT(stdout_of([] { const StoppableThread thread("worker", fail); }),
              HasSubstr("ERR [thread 'worker'] failed, and nobody asked: worker broke"));
}

TEST(StoppableThreadTest, SuccessThrowsNothing) {
  StoppableThread thread("worker", [](std::stop_token) {});
  StoppableThread moved = std::move(thread);
  moved.join();
  EXPECT_TRUE(moved.finished());
  EXPECT_NO_THROW(moved.rethrow_if_failed());
}

TEST(StoppableThreadTest, NoThreadIsFinished) {
  StoppableThread thread;
  EXPECT_FALSE(thread.joinable());
  EXPECT_TRUE(thread.finished());
  EXPECT_NO_THROW(thread.rethrow_if_failed());
  EXPECT_NO_THROW(thread.join());
}

}  // namespace
}  // namespace tensorpack
