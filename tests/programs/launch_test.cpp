// SPDX-License-Identifier: Apache-2.0
// `tp launch` with small shell scripts as ranks.
#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensorpack/distributed/free_port.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Starts `tp launch <options> -- sh -c <script>`.
std::unique_ptr<ChildProcess> start(const std::vector<std::string>& options,
                                    const std::string& script) {
  std::vector<std::string> command = {TENSORPACK_TP, "launch"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"--", "/bin/sh", "-c", script});
  return std::make_unique<ChildProcess>(command);
}

/// Whether a process is there, and is not only waiting to be collected.
bool is_running(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  char state = 'Z';
  stat >> word >> word >> state;
  return stat && state != 'Z';
}

bool ends_soon(pid_t pid) {
  for (int i = 0; i < 100 && is_running(pid); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return !is_running(pid);
}

/// The number behind `name=` in the output.
pid_t number_in(const std::string& output, const std::string& name) {
  const size_t at = output.find(name + "=");
  return at == std::string::npos ? -1 : std::stoi(output.substr(at + name.size() + 1));
}

TEST(LaunchTest, EveryRankIsToldItsPlaceAndEveryLineItsRank) {
  const auto tp = start({"-n", "3"},
                        "echo place $TENSORPACK_RANK/$TENSORPACK_SIZE "
                        "$TENSORPACK_LOCAL_RANK/$TENSORPACK_LOCAL_SIZE "
                        "$TENSORPACK_MASTER_ADDRESS $TENSORPACK_ATTEMPT; echo two >&2");
  EXPECT_EQ(tp->wait(), 0);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(tp->output(),
                HasSubstr(fmt::format("[{0}] place {0}/3 {0}/3 127.0.0.1 0\n", rank)));
    EXPECT_THAT(tp->output(), HasSubstr(fmt::format("[{}] two\n", rank)));
  }
}

TEST(LaunchTest, ALineWithoutAnEndIsNotLost) {
  const auto tp = start({"-n", "2"}, "printf 'half a line'");
  EXPECT_EQ(tp->wait(), 0);
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("[0] half a line\n"), HasSubstr("[1] half a line\n")));
  const auto asking = start({"-n", "1"}, "printf 'name? '; sleep 30");
  EXPECT_TRUE(asking->read_until("[0] name? \n"));
}

TEST(LaunchTest, AllRanksGetOnePort) {
  const auto tp = start({"-n", "2"}, "echo port $TENSORPACK_MASTER_PORT");
  EXPECT_EQ(tp->wait(), 0);
  const std::string& output = tp->output();
  const std::string first = output.substr(output.find("port"), output.find('\n') - 4);
  EXPECT_NE(output.rfind(first), output.find(first)) << output;
}

TEST(LaunchTest, TheStatusIsThatOfTheFirstRankThatFails) {
  const auto tp = start({"-n", "3"},
                        "if [ $TENSORPACK_RANK = 1 ]; then exit 7; fi; sleep 0.5; "
                        "[ $TENSORPACK_RANK = 0 ] || exit 8");
  EXPECT_EQ(tp->wait(), 7);
  EXPECT_THAT(tp->output(), HasSubstr("tp launch: rank 1 ended with status 7."));
  const auto killed = start({"-n", "2"}, "kill -KILL $$");
  EXPECT_EQ(killed->wait(), 128 + SIGKILL);
  EXPECT_THAT(killed->output(), HasSubstr("was ended by signal 9 (Killed)."));
}

TEST(LaunchTest, AProgramThatIsNotThereIsNamed) {
  ChildProcess tp({TENSORPACK_TP, "launch", "-n", "1", "--", "/no/such/program"});
  EXPECT_EQ(tp.wait(), 127);
  EXPECT_THAT(tp.output(), HasSubstr("'/no/such/program' cannot be started: No such file"));
}

TEST(LaunchTest, WrongUsageIsExplained) {
  const auto run = [](std::vector<std::string> options) {
    const auto tp = start(options, "true");
    EXPECT_NE(tp->wait(), 0);
    return tp->output();
  };
  EXPECT_THAT(run({"-n", "5", "-H", "localhost:2"}),
              HasSubstr("[tp launch] 5 ranks do not fit on hosts with 2 slots. Name more"));
  EXPECT_THAT(run({"-H", "localhost:many"}), HasSubstr("'localhost:many' is not a host"));
  EXPECT_THAT(run({"-n", "2", "--min-ranks", "3"}), HasSubstr("between 1 and the number of ranks"));
}

TEST(LaunchTest, RanksThatDoNotEndAfterAFailureAreEnded) {
  const auto tp = start({"-n", "2", "--grace", "0.2"},
                        "if [ $TENSORPACK_RANK = 1 ]; then exit 3; fi; echo pid=$$; sleep 100");
  EXPECT_EQ(tp->wait(), 3);
  EXPECT_THAT(tp->output(), HasSubstr("rank 0 does not end; sending SIGTERM"));
  EXPECT_TRUE(ends_soon(number_in(tp->output(), "pid")));
}

TEST(LaunchTest, ASignalReachesEveryRankOnce) {
  const auto tp = start(
      {"-n", "2"}, "trap 'echo caught; exit 130' INT; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(tp->read_until("[0] ready"));
  ASSERT_TRUE(tp->read_until("[1] ready"));
  tp->send(SIGINT);
  EXPECT_EQ(tp->wait(), 130);
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("[0] caught"), HasSubstr("[1] caught")));
}

TEST(LaunchTest, ARequestToSaveReachesEveryRankAndEndsNone) {
  const auto tp = start({"-n", "2", "--grace", "0.1"},
                        "trap 'echo saved' USR1; trap 'echo ended; exit 140' USR2; echo ready; "
                        "while :; do sleep 0.05; done");
  ASSERT_TRUE(tp->read_until("[0] ready"));
  ASSERT_TRUE(tp->read_until("[1] ready"));
  tp->send(SIGUSR1);
  ASSERT_TRUE(tp->read_until("[0] saved"));
  ASSERT_TRUE(tp->read_until("[1] saved"));
  tp->send(SIGUSR2);
  EXPECT_EQ(tp->wait(), 140);
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("[0] ended"), HasSubstr("[1] ended")));
}

TEST(LaunchTest, ASignalThatIsIgnoredEndsInAKill) {
  const auto tp = start({"-n", "1", "--grace", "0.1"},
                        "trap '' TERM; echo ready pid=$$; while :; do sleep 1; done");
  ASSERT_TRUE(tp->read_until("ready pid="));
  tp->send(SIGTERM);
  EXPECT_EQ(tp->wait(), 128 + SIGKILL);
}

TEST(LaunchTest, NothingIsLeftWhenTheLauncherIsKilled) {
  const auto tp = start({"-n", "2"}, "echo pid$TENSORPACK_RANK=$$; while :; do sleep 1; done");
  ASSERT_TRUE(tp->read_until("pid0="));
  ASSERT_TRUE(tp->read_until("pid1="));
  ASSERT_TRUE(tp->read_until("\n"));
  tp->send(SIGKILL);
  EXPECT_EQ(tp->wait(), 1000 + SIGKILL);
  EXPECT_TRUE(ends_soon(number_in(tp->output(), "pid0")));
  EXPECT_TRUE(ends_soon(number_in(tp->output(), "pid1")));
}

TEST(LaunchTest, WhatARankLeavesBehindEndsWithIt) {
  const auto tp = start({"-n", "1"}, "sleep 100 & echo pid=$!; exit 0");
  EXPECT_EQ(tp->wait(), 0);
  EXPECT_TRUE(ends_soon(number_in(tp->output(), "pid")));
}

TEST(LaunchTest, AFailedJobIsStartedAgain) {
  const auto tp = start({"-n", "2", "--max-restarts", "2"},
                        "echo attempt $TENSORPACK_ATTEMPT; [ $TENSORPACK_ATTEMPT = 1 ]");
  EXPECT_EQ(tp->wait(), 0);
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("starting 2 ranks again, attempt 2 of 3."),
                                  HasSubstr("[1] attempt 1"), Not(HasSubstr("attempt 2\n"))));
  const auto hopeless = start({"-n", "1", "--max-restarts", "1"}, "exit 5");
  EXPECT_EQ(hopeless->wait(), 5);
  EXPECT_THAT(hopeless->output(), HasSubstr("given up after 1 restart."));
}

TEST(LaunchTest, AfterASignalNothingIsStartedAgain) {
  const auto tp = start({"-n", "1", "--max-restarts", "3"}, "echo ready; sleep 100");
  ASSERT_TRUE(tp->read_until("ready"));
  tp->send(SIGTERM);
  EXPECT_EQ(tp->wait(), 128 + SIGTERM);
  EXPECT_THAT(tp->output(), Not(HasSubstr("again")));
}

TEST(LaunchTest, OnlyRankZeroReadsTheInput) {
  ChildProcess tp({"/bin/sh", "-c",
                   std::string("echo hello | ") + TENSORPACK_TP +
                       " launch -n 2 -- /bin/sh -c 'cat; echo end of $TENSORPACK_RANK'"});
  EXPECT_EQ(tp.wait(), 0);
  EXPECT_THAT(tp.output(), AllOf(HasSubstr("[0] hello\n"), HasSubstr("[0] end of 0"),
                                 HasSubstr("[1] end of 1"), Not(HasSubstr("[1] hello"))));
}

/// Hosts that are folders: one is there as long as its folder is.
class LaunchHostsTest : public testing::Test {
 protected:
  LaunchHostsTest() {
    char name[] = "/tmp/tensorpack_hosts_XXXXXX";
    folder_ = mkdtemp(name);
    for (const char* host : {"one", "two"}) std::filesystem::create_directory(folder_ / host);
    std::ofstream(folder_ / "rsh") << "#!/bin/sh\n"
                                   << "[ -d " << folder_.string() << "/$1 ] || exit 255\n"
                                   << "HOST=$1 exec sh -c \"$2\"\n";
    std::filesystem::permissions(folder_ / "rsh", std::filesystem::perms::owner_all);
  }
  ~LaunchHostsTest() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> options(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"-H", "one:2,two:1", "--rsh",
                                    (folder_ / "rsh").string() + " {host}"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// A script by which the second host, with the last rank on it, goes away.
  std::string lose_second_host() const {
    return "if [ $TENSORPACK_RANK = 2 ]; then rmdir " + (folder_ / "two").string() + "; fi; exit 4";
  }

  std::filesystem::path folder_;
};

TEST_F(LaunchHostsTest, RanksArePlacedOnHosts) {
  const auto tp = start(options({"-n", "3"}),
                        "echo $HOST \"it's\" $TENSORPACK_LOCAL_RANK/$TENSORPACK_LOCAL_SIZE "
                        "of $TENSORPACK_SIZE at $TENSORPACK_MASTER_ADDRESS");
  EXPECT_EQ(tp->wait(), 0);
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("[0] one it's 0/2 of 3 at one"),
                                  HasSubstr("[1] one it's 1/2 of 3 at one"),
                                  HasSubstr("[2] two it's 0/1 of 3 at one")));
}

TEST_F(LaunchHostsTest, RanksElsewhereDoNotMindTheEndOfTheInput) {
  ChildProcess tp({"/bin/sh", "-c",
                   std::string(TENSORPACK_TP) + " launch -H one:2 --rsh '" +
                       (folder_ / "rsh").string() +
                       " {host}' -- /bin/sh -c 'sleep 0.5; echo done' < /dev/null"});
  EXPECT_EQ(tp.wait(), 0);
  EXPECT_THAT(tp.output(), AllOf(HasSubstr("[0] done"), HasSubstr("[1] done")));
}

TEST_F(LaunchHostsTest, VariablesAreExported) {
  const auto tp =
      start(options({"-n", "1", "-x", "COLOR=light red", "-x", "HOME", "-x", "NO_SUCH"}),
            "echo $COLOR at $HOME");
  EXPECT_EQ(tp->wait(), 0);
  EXPECT_THAT(tp->output(), HasSubstr(std::string("[0] light red at ") + std::getenv("HOME")));
}

TEST_F(LaunchHostsTest, AJobGoesOnWithoutAHostThatDoesNotComeBack) {
  const std::string script =
      "if [ $TENSORPACK_ATTEMPT = 1 ]; then "
      "echo $HOST has $TENSORPACK_RANK of $TENSORPACK_SIZE; exit 0; fi; " +
      lose_second_host();
  const auto tp =
      start(options({"--max-restarts", "1", "--min-ranks", "2", "--host-timeout", "0.1"}), script);
  EXPECT_EQ(tp->wait(), 0);
  EXPECT_THAT(
      tp->output(),
      AllOf(HasSubstr("tp launch: no answer from two for 0.1 s."),
            HasSubstr("going on with 2 ranks instead of 3: the total batch is 2/3 of what it "
                      "was, and each rank takes one part in 2 of the data."),
            HasSubstr("[0] one has 0 of 2"), HasSubstr("[1] one has 1 of 2")));
}

TEST_F(LaunchHostsTest, RanksElsewhereEndInOrderAfterASignal) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR2, SIGXCPU}) {
    const auto tp = start(options({"-n", "1"}),
                          "trap 'sleep 0.3; echo saved; exit 9' TERM INT HUP USR2 XCPU; "
                          "echo ready; while :; do sleep 0.05; done");
    ASSERT_TRUE(tp->read_until("ready"));
    tp->send(signal);
    EXPECT_EQ(tp->wait(), 9) << signal;
    EXPECT_THAT(tp->output(), HasSubstr("[0] saved")) << signal;
  }
}

TEST_F(LaunchHostsTest, ASignalEndsTheWaitForAHost) {
  const auto tp =
      start(options({"--max-restarts", "1", "--host-timeout", "100"}), lose_second_host());
  ASSERT_TRUE(tp->read_until("ended with status 4"));
  tp->send(SIGTERM);
  EXPECT_THAT(tp->wait(), testing::AnyOf(4, 128 + SIGTERM));
}

TEST_F(LaunchHostsTest, TooFewRanksAreNotStarted) {
  const auto tp =
      start(options({"--max-restarts", "1", "--min-ranks", "3", "--host-timeout", "0.1"}),
            lose_second_host());
  EXPECT_EQ(tp->wait(), 4);
  EXPECT_THAT(tp->output(),
              HasSubstr("the hosts that are left have 2 slots, and --min-ranks is 3."));
}

TEST_F(LaunchHostsTest, RanksElsewhereEndWithTheLauncher) {
  const auto tp = start(options({"-n", "1"}), "echo pid=$$; while :; do sleep 1; done");
  ASSERT_TRUE(tp->read_until("pid="));
  ASSERT_TRUE(tp->read_until("\n"));
  tp->send(SIGKILL);
  EXPECT_EQ(tp->wait(), 1000 + SIGKILL);
  EXPECT_TRUE(ends_soon(number_in(tp->output(), "pid")));
}

/// Two hosts that are this one, behind a real ssh.
class LaunchOverSshTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* sshd = "/usr/sbin/sshd";  // wants to be called by its full path
    if (!std::filesystem::exists(sshd)) GTEST_SKIP() << "sshd is not installed";
    const std::string keys = "ssh-keygen -q -t ed25519 -N '' -f '" + dir_.path().string() + "/";
    ASSERT_EQ(std::system((keys + "host'").c_str()), 0);
    ASSERT_EQ(std::system((keys + "user'").c_str()), 0);
    std::ofstream(dir_ / "config")
        << "Port " << port_ << "\nListenAddress 127.0.0.2\n"
        << "ListenAddress 127.0.0.3\nPidFile none\n"
        << "StrictModes no\nUsePAM no\nPermitRootLogin yes\n"
        << "HostKey " << (dir_ / "host").string() << "\nAuthorizedKeysFile "
        << (dir_ / "user.pub").string() << "\n";
    server_ = std::make_unique<ChildProcess>(
        std::vector<std::string>{sshd, "-D", "-e", "-f", (dir_ / "config").string()});
    if (!server_->read_until("Server listening on 127.0.0.2")) {
      GTEST_SKIP() << "sshd does not start: " << server_->output();
    }
  }

  std::vector<std::string> options(const std::string& hosts) const {
    return {"-H", hosts, "--rsh",
            fmt::format("ssh -p {} -i {} -o BatchMode=yes -o StrictHostKeyChecking=no -o "
                        "UserKnownHostsFile=/dev/null -o LogLevel=ERROR {{host}}",
                        port_, (dir_ / "user").string())};
  }

  TempDir dir_;
  int port_ = free_port();
  std::unique_ptr<ChildProcess> server_;
};

TEST_F(LaunchOverSshTest, RanksTellTheirPlaceAndTheirStatus) {
  const auto tp = start(options("127.0.0.2:2,127.0.0.3"),
                        "echo \"it's\" $TENSORPACK_RANK of $TENSORPACK_SIZE at "
                        "$TENSORPACK_MASTER_ADDRESS; [ $TENSORPACK_RANK != 2 ] || exit 7");
  EXPECT_EQ(tp->wait(), 7);
  for (const char* rank : {"0", "1", "2"}) {
    EXPECT_THAT(tp->output(), HasSubstr(fmt::format("[{0}] it's {0} of 3 at 127.0.0.2\n", rank)));
  }
}

TEST_F(LaunchOverSshTest, ASignalIsPassedOnAndWhatRanksSayThenIsNotLost) {
  const auto tp = start(options("127.0.0.2,127.0.0.3"),
                        "trap 'sleep 0.3; echo saved; exit 9' INT; echo ready; "
                        "while :; do sleep 0.05; done");
  ASSERT_TRUE(tp->read_until("[0] ready"));
  ASSERT_TRUE(tp->read_until("[1] ready"));
  tp->send(SIGINT);
  EXPECT_EQ(tp->wait(), 9);
  EXPECT_THAT(tp->output(), AllOf(HasSubstr("[0] saved"), HasSubstr("[1] saved")));
}

TEST_F(LaunchOverSshTest, RanksEndWithTheLauncher) {
  const auto tp = start(options("127.0.0.2"), "echo pid=$$; while :; do sleep 1; done");
  ASSERT_TRUE(tp->read_until("pid="));
  ASSERT_TRUE(tp->read_until("\n"));
  tp->send(SIGKILL);
  EXPECT_EQ(tp->wait(), 1000 + SIGKILL);
  EXPECT_TRUE(ends_soon(number_in(tp->output(), "pid")));
}

}  // namespace
}  // namespace tensorpack
