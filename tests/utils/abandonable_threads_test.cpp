// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/abandonable_threads.h"

#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <thread>

#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tests/support/thread_limit.h"
#include "tests/support/throws.h"
#include "tests/utils/support.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;

TEST(AbandonableThreadsTest, AreStoppedAndAwaited) {
  std::atomic<int> ended = 0;
  {
    AbandonableThreads threads("test");
    for (int i = 0; i < 3; ++i) {
      threads.start([&] {
        while (!stop_requested()) std::this_thread::yield();
        ++ended;
      });
    }
    EXPECT_EQ(ended, 0);
  }
  EXPECT_EQ(ended, 3);
}

TEST(AbandonableThreadsTest, OneThatCannotBeStartedLeavesTheOthersToBeStopped) {
  std::atomic<bool> has_ended = false;
  {
    AbandonableThreads threads("test");
    threads.start([&] {
      while (!stop_requested()) std::this_thread::yield();
      has_ended = true;
    });
    const ThreadLimit limit(0);
    EXPECT_ERROR(threads.start([] {}), "[thread 'test'] it cannot be started: ");
  }
  EXPECT_TRUE(has_ended);
}

TEST(AbandonableThreadsTest, EndTellsWhetherTheyEnded) {
  AbandonableThreads threads("test");
  threads.start([] {
    while (!stop_requested()) std::this_thread::yield();
  });
  EXPECT_TRUE(threads.end());
  EXPECT_TRUE(threads.end());

  std::promise<void> lets_go;
  auto used = std::make_shared<std::promise<void>>();
  std::future<void> has_ended = used->get_future();
  AbandonableThreads others("test");
  others.start([used = std::move(used), stuck = lets_go.get_future().share()] {
    stuck.wait();
    used->set_value();
  });
  {
    const SignalWatch watch;
    std::raise(SIGTERM);
    EXPECT_FALSE(others.end());
  }
  EXPECT_FALSE(others.end()) << "it waits for nothing: there is no signal any more";
  lets_go.set_value();
  has_ended.wait();
}

TEST(AbandonableThreadsTest, WhenASignalIsPendingAStuckOneIsLeftBehindWithWhatItUses) {
  std::promise<void> lets_go;
  auto used = std::make_shared<std::promise<void>>();
  std::future<void> has_ended = used->get_future();
  const SignalWatch watch;
  std::raise(SIGTERM);
  EXPECT_THAT(stdout_of([&] {
                AbandonableThreads threads("test");
                threads.start([used = std::move(used), stuck = lets_go.get_future().share()] {
                  stuck.wait();
                  used->set_value();
                });
              }),
              HasSubstr("test still waits for its data: it is left behind."));
  lets_go.set_value();
  has_ended.wait();
}

}  // namespace
}  // namespace tensorpack
