// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/worker_team.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "tests/support/thread_limit.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

TEST(WorkerTeamTest, EachPartIsDoneOnItsOwnThreadEveryTime) {
  WorkerTeam team("test", 3);
  std::vector<std::vector<std::thread::id>> threads(3);
  for (int job = 0; job < 100; ++job) {
    EXPECT_FALSE(team.run([&](size_t i) { threads[i].push_back(std::this_thread::get_id()); }));
  }
  for (const auto& ids : threads) {
    ASSERT_EQ(ids.size(), 100U);
    EXPECT_THAT(ids, testing::Each(ids[0]));
  }
  EXPECT_NE(threads[1][0], threads[2][0]);
  EXPECT_EQ(threads[0][0], std::this_thread::get_id());
}

TEST(WorkerTeamTest, PartsRunAtOnce) {
  WorkerTeam team("test", 2);
  std::atomic<int> arrived = 0;
  EXPECT_FALSE(team.run([&](size_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();  // would never end one after the other
  }));
}

TEST(WorkerTeamTest, TheFirstFailureIsReturnedWhenAllHaveEnded) {
  WorkerTeam team("test", 3);
  std::atomic<bool> failed = false;
  std::atomic<int> ended = 0;
  const auto failure = team.run(
      [&](size_t i) {
        if (i == 1) throw std::runtime_error("broken");
        while (!failed) std::this_thread::yield();
        ++ended;
        if (i == 2) throw std::runtime_error("later");
      },
      [&](size_t i) { failed = i == 1; });
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->worker, 1U);
  EXPECT_EQ(ended, 2);
  EXPECT_THROW(std::rethrow_exception(failure->exception), std::runtime_error);
  EXPECT_FALSE(team.run([](size_t) {})) << "the team goes on";
}

TEST(WorkerTeamTest, AThreadThatCannotBeStartedIsAnError) {
  const ThreadLimit limit(1);
  EXPECT_ERROR(WorkerTeam("test", 3), "[thread 'test2'] it cannot be started: ");
}

TEST(WorkerTeamTest, ThreadsAreSetUpFirst) {
  std::atomic<int> started = 0;
  WorkerTeam team("test", 3, [&] { ++started; });
  EXPECT_FALSE(team.run([&](size_t i) { EXPECT_TRUE(i == 0 || started >= 1); }));
  EXPECT_EQ(started, 2);
}

}  // namespace
}  // namespace tensorpack
