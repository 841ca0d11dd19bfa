// SPDX-License-Identifier: Apache-2.0
// Real processes, and what the others say when one of them is lost.
#include <gmock/gmock.h>

#include <chrono>
#include <thread>

#include "tensorpack/distributed/detail/c10d.h"
#include "tests/distributed/workers.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;

TEST(WorkerProcessTest, ProcessesFindEachOtherByVariables) {
  const auto workers = start_workers(2, {"basic"});
  for (int rank = 0; rank < 2; ++rank) {
    ChildProcess& worker = *workers[static_cast<size_t>(rank)];
    EXPECT_EQ(worker.wait(), 0);
    EXPECT_THAT(worker.output(), HasSubstr("rank " + std::to_string(rank) + " of 2 is done"));
  }
}

TEST(WorkerProcessTest, SeveralGroupsAreUsedOneAfterAnotherAndAtOnce) {
  const auto workers = start_workers(3, {"groups", "timeout=60"});
  for (const auto& worker : workers) {
    EXPECT_EQ(worker->wait(), 0);
    EXPECT_THAT(worker->output(), HasSubstr(" of 3 is done"));
  }
}

TEST(WorkerProcessTest, TheStoreOfAGroupThatWasLeftMayHang) {
  const auto workers = start_workers(2, {"left"});
  EXPECT_EQ(workers[1]->wait(), 0) << workers[1]->output();
  EXPECT_THAT(workers[1]->output(), HasSubstr("rank 1 went on alone"));
}

TEST(WorkerProcessTest, ARankZeroThatStopsWhileTheRanksComeIsNamed) {
  const int port = free_port();
  const auto first_two = start_workers(3, {"basic", "timeout=3"}, port, {}, /*started=*/2);
  ASSERT_TRUE(first_two[1]->read_until("rank 1 comes")) << first_two[1]->output();
  std::this_thread::sleep_for(std::chrono::seconds(1));  // until it waits for rank 2
  first_two[0]->send(SIGSTOP);
  EXPECT_EQ(first_two[1]->wait(), 3);
  EXPECT_THAT(first_two[1]->output(),
              HasSubstr("error: [rank 1 of 3] rank 0 at 127.0.0.1:" + std::to_string(port) + " "));
}

TEST(WorkerProcessTest, AnotherJobAtThePortIsAnError) {
  const int port = free_port();
  const auto first = start_workers(2, {"loop"}, port);
  ASSERT_TRUE(first[0]->read_until("has begun"));
  const auto second = start_workers(2, {"loop", "timeout=10"}, port);
  for (const auto& worker : second) EXPECT_EQ(worker->wait(), 3);
  EXPECT_THAT(second[0]->output(), HasSubstr("error: [rank 0 of 2] cannot listen at port "));
  EXPECT_THAT(second[1]->output(), HasSubstr("another process has come to 127.0.0.1"));
}

TEST(WorkerProcessTest, ADeadRankIsNamedWithinSeconds) {
  const auto workers = start_workers(4, {"loop", "rank=2", "at=12", "act=die", "timeout=60"});
  ASSERT_TRUE(workers[2]->read_until("will die"));
  const auto begin = std::chrono::steady_clock::now();
  for (const size_t rank : {0, 1, 3}) {
    EXPECT_EQ(workers[rank]->wait(), 3);
    EXPECT_THAT(workers[rank]->output(),
                testing::ContainsRegex("error: \\[rank " + std::to_string(rank) +
                                       " of 4\\] rank 2 is gone: no sign of life for .* s, last "
                                       "seen in step 12\\. "));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(12));
  EXPECT_EQ(workers[2]->wait(), 1000 + SIGKILL);
}

// Steps are faster than signs of life.
TEST(WorkerProcessTest, TheStepInWhichARankDiedIsNamed) {
  for (const int rank : {0, 1}) {
    const auto workers = start_workers(
        2, {"loop", "rank=" + std::to_string(rank), "at=40", "act=die", "timeout=60", "pause=1"});
    ChildProcess& other = *workers[static_cast<size_t>(1 - rank)];
    EXPECT_EQ(other.wait(), 3);
    EXPECT_THAT(other.output(), HasSubstr("rank " + std::to_string(rank) + " is gone: "));
    EXPECT_THAT(other.output(), HasSubstr(", last seen in step 40. "));
  }
}

TEST(WorkerProcessTest, ADeadRankZeroIsNamed) {
  const auto workers = start_workers(2, {"loop", "rank=0", "at=2", "act=die", "timeout=60"});
  EXPECT_EQ(workers[1]->wait(), 3);
  EXPECT_THAT(workers[1]->output(),
              HasSubstr("error: [rank 1 of 2] rank 0 is gone: its connection at 127.0.0.1:"));
}

TEST(WorkerProcessTest, AStoppedRankIsNamedAtTheTimeout) {
  const auto workers = start_workers(2, {"loop", "rank=1", "at=2", "act=stop", "timeout=3"});
  EXPECT_EQ(workers[0]->wait(), 3);
  EXPECT_THAT(workers[0]->output(), HasSubstr("[rank 0 of 2] rank 1 is gone: no sign of life for"));
}

// A launcher may host the store, and keep it while it starts its ranks again, as torchrun does.
class StoreOfALauncherTest : public testing::Test {
 protected:
  std::vector<std::unique_ptr<ChildProcess>> start(int attempt,
                                                   const std::vector<std::string>& arguments) {
    return start_workers(2, arguments, port_,
                         {"TORCHELASTIC_USE_AGENT_STORE=True",
                          "TORCHELASTIC_RESTART_COUNT=" + std::to_string(attempt)});
  }

  int port_ = free_port();
  std::shared_ptr<detail::SharedStore> store_ =
      detail::open_store({.address = "localhost",
                          .port = port_,
                          .host = true,
                          .prefix = "launcher",
                          .timeout = std::chrono::seconds(10)});
};

TEST_F(StoreOfALauncherTest, AttemptsDoNotMeetWhatEarlierOnesLeftInIt) {
  for (const int attempt : {0, 1}) {
    const auto workers = start(attempt, {"basic"});
    for (const auto& worker : workers) EXPECT_EQ(worker->wait(), 0) << worker->output();
  }
}

TEST_F(StoreOfALauncherTest, ItsLossIsToldFromThatOfARank) {
  const auto workers = start(0, {"loop", "rank=1", "at=5", "act=stop", "timeout=3"});
  ASSERT_TRUE(workers[0]->read_until("has begun"));
  store_.reset();
  EXPECT_EQ(workers[0]->wait(), 3);
  EXPECT_THAT(workers[0]->output(),
              HasSubstr("[rank 0 of 2] the launcher is gone: its connection at 127.0.0.1:"));
}

}  // namespace
}  // namespace tensorpack
