// SPDX-License-Identifier: Apache-2.0
// The same program under every launcher there is, on one host and on two.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/distributed/two_hosts.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// Expects the command, which starts two ranks, to end well.
void expect_two_ranks(const std::vector<std::string>& command, const std::string& launcher) {
  ChildProcess job(command);
  EXPECT_EQ(job.wait(), 0);
  for (const char* rank : {"0", "1"}) {
    EXPECT_THAT(job.output(),
                HasSubstr(fmt::format("rank {0} of 2 is done (local {0} of 2, attempt "
                                      "0, by {1})",
                                      rank, launcher)));
  }
}

TEST(LaunchersTest, OpenMpi) {
  const std::string mpirun = find_program("mpirun.openmpi");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun.openmpi is not installed (Debian: openmpi-bin)";
  std::vector<std::string> command = {mpirun, "--oversubscribe", "-n", "2"};
  if (geteuid() == 0) command.push_back("--allow-run-as-root");
  command.insert(command.end(), {TENSORPACK_DISTRIBUTED_WORKER, "basic"});
  expect_two_ranks(command, "openmpi");
}

TEST(LaunchersTest, Mpich) {
  const std::string mpirun = find_program("mpirun.mpich");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun.mpich is not installed (Debian: mpich)";
  expect_two_ranks({mpirun, "-n", "2", TENSORPACK_DISTRIBUTED_WORKER, "basic"}, "mpich");
}

TEST(LaunchersTest, Torchrun) {
  const std::string torchrun = find_program("torchrun");
  if (torchrun.empty()) GTEST_SKIP() << "torchrun is not installed (Debian: python3-torch)";
  ChildProcess of_nothing({torchrun, "--no_python", "--rdzv_backend", "c10d", "--rdzv_endpoint",
                           "localhost:0", "true"});
  of_nothing.wait();
  if (of_nothing.output().find("without libuv support") != std::string::npos) {
    GTEST_SKIP() << "torchrun asks for libuv, and its libtorch has none (Debian 13)";
  }
  // Without -r and -t the version of Debian leaves out the output; a port of its own, because the
  // default is everybody's.
  expect_two_ranks(
      {torchrun, "-r", "1", "-t", "1", "--no_python", "--nproc_per_node", "2", "--rdzv_backend",
       "c10d", "--rdzv_endpoint", "localhost:0", TENSORPACK_DISTRIBUTED_WORKER, "basic"},
      "torchrun");
}

TEST(LaunchersTest, Slurm) {
  ChildProcess job({TENSORPACK_WITH_SLURM, "srun", "--overcommit", "-n", "2",
                    TENSORPACK_DISTRIBUTED_WORKER, "basic"});
  const int status = job.wait();
  if (status == kNoSlurm) GTEST_SKIP() << job.output();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(job.output(),
              AllOf(HasSubstr("rank 0 of 2 is done (local 0 of 2, attempt 0, by slurm)"),
                    HasSubstr("rank 1 of 2 is done (local 1 of 2")));
}

TEST(LaunchersTest, TpLaunch) {
  expect_two_ranks(
      {TENSORPACK_TP, "launch", "-n", "2", "--", TENSORPACK_DISTRIBUTED_WORKER, "basic"}, "tp");
}

TEST(LaunchersTest, AJobThatLosesARankIsFinishedByARestart) {
  ChildProcess job({TENSORPACK_TP, "launch", "-n", "3", "--max-restarts", "1", "--",
                    TENSORPACK_DISTRIBUTED_WORKER, "loop", "steps=4", "rank=1", "at=2", "act=die"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_THAT(job.output(), AllOf(HasSubstr("tp launch: rank 1 was ended by signal 9 (Killed)."),
                                  HasSubstr("error: [rank 0 of 3] rank 1 is gone"),
                                  HasSubstr("error: [rank 2 of 3] rank 1 is gone"),
                                  HasSubstr("[1] rank 1 of 3 is done (local 1 of 3, attempt 1")));
}

TEST_F(TwoHostsTest, RanksMeetAcrossHosts) {
  ChildProcess ranks(job({TENSORPACK_DISTRIBUTED_WORKER, "basic"}));
  EXPECT_EQ(ranks.wait(), 0);
  EXPECT_THAT(ranks.output(), AllOf(HasSubstr("rank 0 of 2 is done (local 0 of 1"),
                                    HasSubstr("rank 1 of 2 is done (local 0 of 1")));
}

// A socket of another host, made by a thread that enters its network.
int listen_on_host(const std::string& host, int port) {
  int listening = -1;
  std::thread([&] {
    const int network = open(("/run/netns/" + host).c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(setns(network, CLONE_NEWNET), 0);
    close(network);
    listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    ASSERT_EQ(bind(listening, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(listening, 8), 0);
  }).join();
  return listening;
}

// Rank 0 hosts the store on its own host, and looks for it on the other one, as all ranks do.
TEST_F(TwoHostsTest, ASilentServiceAtTheAddressOfAnotherHostIsNamedByRankZero) {
  constexpr int kPort = 29417;
  const int listening = listen_on_host(b_, kPort);
  ChildProcess rank({find_program("ip"), "netns", "exec", a_, "env", "RANK=0", "WORLD_SIZE=2",
                     "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=1", "MASTER_ADDR=10.77.0.2",
                     fmt::format("MASTER_PORT={}", kPort), "TENSORPACK_TIMEOUT=1",
                     TENSORPACK_DISTRIBUTED_WORKER, "basic"});
  EXPECT_EQ(rank.wait(), 3);
  EXPECT_THAT(rank.output(),
              HasSubstr(fmt::format("[rank 0 of 2] the store of this process at 10.77.0.2:{} does "
                                    "not answer as it should within 1 s: it listens, but says "
                                    "nothing",
                                    kPort)));
  close(listening);
}

TEST_F(TwoHostsTest, APulledCableIsAnErrorWithinTheTimeout) {
  ChildProcess ranks(job({TENSORPACK_DISTRIBUTED_WORKER, "loop"}));
  ASSERT_TRUE(ranks.read_until("rank 0 pid"));
  ASSERT_TRUE(ranks.read_until("rank 1 pid"));
  ASSERT_TRUE(ip(fmt::format("-n {} link set tpveth0 down", a_)));
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(ranks.wait(), 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(15));
  EXPECT_THAT(ranks.output(),
              AllOf(HasSubstr("error: [rank 0 of 2] rank 1 is gone: no sign of life for"),
                    HasSubstr("error: [rank 1 of 2] rank 0 is gone")));
}

}  // namespace
}  // namespace tensorpack
