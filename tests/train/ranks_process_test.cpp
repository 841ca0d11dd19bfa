// SPDX-License-Identifier: Apache-2.0
// A training as several processes, started in every way there is, killed and resumed.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <sys/mount.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <thread>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/fs.h"
#include "tests/distributed/ranks.h"
#include "tests/distributed/two_hosts.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kNotAtAll = 1'000'000;

struct Job {
  int epochs = 2;
  int stop = kNotAtAll;  // after which step the rank sends itself the signal
  int signal = SIGKILL;
  int rank = 0;
  int timeout = 60;  // in seconds; a busy machine is slow to start processes
};

Words program(const fs::path& dir, const Job& job) {
  return {TENSORPACK_TRAIN_CHILD,
          "resume",
          dir.string(),
          std::to_string(job.epochs),
          std::to_string(job.stop),
          std::to_string(job.signal),
          std::to_string(job.rank)};
}

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const Words kEnvironment = {"/usr/bin/env", "OMP_NUM_THREADS=1"};

struct Ended {
  int status = 0;
  std::string output = {};
};

using Children = std::vector<std::unique_ptr<ChildProcess>>;

// By variables, without any launcher.
Children start_ranks(int size, const Words& command, int timeout = 60) {
  Children children;
  const std::string port = std::to_string(free_port());
  for (int rank = 0; rank < size; ++rank) {
    children.push_back(std::make_unique<ChildProcess>(
        kEnvironment +
        Words{"RANK=" + std::to_string(rank), "WORLD_SIZE=" + std::to_string(size),
              "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port,
              "TENSORPACK_TIMEOUT=" + std::to_string(timeout)} +
        command));
  }
  return children;
}

Children start_ranks(int size, const fs::path& dir, const Job& job) {
  return start_ranks(size, program(dir, job), job.timeout);
}

Ended wait_for(ChildProcess& child) {
  const int status = child.wait();
  return {status, child.output()};
}

std::vector<Ended> run_ranks_of(int size, const fs::path& dir, const Job& job = {}) {
  std::vector<Ended> ended;
  for (const auto& child : start_ranks(size, dir, job)) ended.push_back(wait_for(*child));
  return ended;
}

Ended run(const Words& command) {
  ChildProcess child(kEnvironment + command);
  return wait_for(child);
}

void expect_same_weights(const fs::path& a, const fs::path& b) {
  const Checkpoint one = load_checkpoint(a);
  const Checkpoint other = load_checkpoint(b);
  EXPECT_EQ(one.global_step, other.global_step);
  ASSERT_EQ(one.variables.size(), other.variables.size());
  for (const auto& [name, value] : one.variables) {
    EXPECT_TRUE(at::equal(value, other.variables.at(name))) << name;
  }
}

struct Launcher {
  std::string name = {};
  std::string tool = {};  // that must be there
  std::function<Words(int size)> command = {};
};
void PrintTo(const Launcher& launcher, std::ostream* out) { *out << launcher.name; }

const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all = {
      {"TpLaunch", TENSORPACK_TP,
       [](int size) {
         return Words{TENSORPACK_TP, "launch", "-n", std::to_string(size), "--"};
       }},
      {"OpenMpi", "/usr/bin/mpirun.openmpi",
       [](int size) {
         return Words{"/usr/bin/mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n",
                      std::to_string(size)};
       }},
      {"Mpich", "/usr/bin/mpirun.mpich",
       [](int size) {
         return Words{"/usr/bin/mpirun.mpich", "-n", std::to_string(size)};
       }},
      {"Torchrun", "/usr/bin/torchrun",
       [](int size) {
         return Words{"/usr/bin/torchrun",  "-r",         "1", "-t", "1", "--nproc_per_node",
                      std::to_string(size), "--no_python"};
       }},
      {"Slurm", "/usr/bin/srun",
       [](int size) {
         return Words{TENSORPACK_WITH_SLURM, "srun", "--overcommit", "-n", std::to_string(size)};
       }},
  };
  return all;
}

class LauncherTest : public testing::TestWithParam<Launcher> {};

TEST_P(LauncherTest, TheSameProgramReachesTheSameWeights) {
  if (!fs::exists(GetParam().tool)) GTEST_SKIP() << GetParam().tool << " is not installed";
  for (const int size : {2, 4}) {
    const TempDir plain, launched;
    for (const Ended& ended : run_ranks_of(size, plain.path())) {
      ASSERT_EQ(ended.status, 0) << ended.output;
    }
    const Ended ended = run(GetParam().command(size) + program(launched.path(), {}));
    if (ended.status == kNoSlurm) GTEST_SKIP() << ended.output;
    ASSERT_EQ(ended.status, 0) << ended.output;
    expect_same_weights(plain.path(), launched.path());
  }
}

INSTANTIATE_TEST_SUITE_P(All, LauncherTest, testing::ValuesIn(launchers()),
                         [](const auto& info) { return info.param.name; });

TEST_F(TwoHostsTest, ATrainingReachesTheSameWeightsAcrossHosts) {
  const TempDir plain, launched;
  for (const Ended& ended : run_ranks_of(2, plain.path())) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  const Ended ended = run(job(program(launched.path(), {})));
  ASSERT_EQ(ended.status, 0) << ended.output;
  expect_same_weights(plain.path(), launched.path());
}

TEST(RanksProcessTest, ARankThatIsKilledIsNamedByTheOthersAndTheNextRunGoesOnExactly) {
  const TempDir whole, parts;
  for (const Ended& ended : run_ranks_of(3, whole.path(), {.epochs = 4})) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  const std::vector<Ended> killed =
      run_ranks_of(3, parts.path(), {.epochs = 4, .stop = 12, .rank = 1});
  EXPECT_EQ(killed[1].status, 1000 + SIGKILL);
  for (const size_t rank : {0U, 2U}) {
    EXPECT_EQ(killed[rank].status, 1);
    EXPECT_THAT(killed[rank].output, AllOf(HasSubstr("rank 1 is gone"), HasSubstr("step 1")));
  }
  for (const Ended& ended : run_ranks_of(3, parts.path(), {.epochs = 4})) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  expect_same_weights(whole.path(), parts.path());
}

std::vector<Ended> validate_in_ranks(int size, const fs::path& dir, const std::string& shares) {
  std::vector<Ended> ended;
  const Words command = {TENSORPACK_TRAIN_CHILD, "validate_shares", dir.string(), shares};
  for (const auto& child : start_ranks(size, command)) ended.push_back(wait_for(*child));
  return ended;
}

TEST(RanksProcessTest, ValidationInAllProcessesCountsEverySampleOnce) {
  for (const int size : {1, 2, 3}) {
    const TempDir dir;
    for (const Ended& ended : validate_in_ranks(size, dir.path(), "all")) {
      EXPECT_EQ(ended.status, 0) << ended.output;
      EXPECT_THAT(ended.output, HasSubstr("error 0.200000 accuracy 0.800000")) << size;
    }
  }
}

// Three equal shares of 10 samples leave one out, and it is a wrong one.
TEST(RanksProcessTest, ValidationOnEqualSharesThatLeaveASampleOutIsAnErrorInAll) {
  const TempDir dir;
  for (const Ended& ended : validate_in_ranks(3, dir.path(), "equal")) {
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(ended.output,
                AllOf(HasSubstr("shard() left 1 datapoint"), HasSubstr("{.equal = false}")));
    EXPECT_THAT(ended.output, testing::Not(HasSubstr("accuracy 0.")));
  }
}

// Without the random numbers of all ranks a checkpoint would not be exact: then there is none.
TEST(RanksProcessTest, ARankThatIsKilledWhenACheckpointIsDueLeavesTheOneBefore) {
  const TempDir whole, parts;
  run_ranks_of(2, whole.path(), {.epochs = 3});
  const auto killed = run_ranks_of(2, parts.path(), {.epochs = 3, .stop = -2, .rank = 1});
  EXPECT_EQ(killed[0].status, 1);
  EXPECT_EQ(load_checkpoint(parts.path()).epoch_num, 1);
  for (const Ended& ended : run_ranks_of(2, parts.path(), {.epochs = 3})) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  expect_same_weights(whole.path(), parts.path());
}

TEST(RanksProcessTest, ARankThatHangsIsNamedByTheOthersWithinTheTimeout) {
  const TempDir dir;
  const Children ranks =
      start_ranks(3, dir.path(), {.stop = 7, .signal = SIGSTOP, .rank = 2, .timeout = 10});
  const auto start = std::chrono::steady_clock::now();
  for (const size_t rank : {0U, 1U}) {
    const Ended ended = wait_for(*ranks[rank]);
    EXPECT_EQ(ended.status, 1);
    EXPECT_THAT(ended.output, AllOf(HasSubstr("rank 2 is gone"), HasSubstr("global_step = 7")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
  EXPECT_EQ(load_checkpoint(dir.path()).epoch_num, 1) << "nothing is half-written";
}

TEST(RanksProcessTest, SigtermToOneRankEndsAllAfterTheSameStepWithACheckpointOfAll) {
  const TempDir whole;
  for (const Ended& ended : run_ranks_of(3, whole.path(), {.epochs = 4})) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  for (const int rank : {0, 2}) {
    const TempDir parts;
    const auto ended =
        run_ranks_of(3, parts.path(), {.epochs = 4, .stop = 8, .signal = SIGTERM, .rank = rank});
    for (const Ended& one : ended) {
      EXPECT_EQ(one.status, 128 + SIGTERM) << one.output;
      EXPECT_THAT(one.output, HasSubstr("Training was terminated (SIGTERM) at global_step = "));
    }
    const Checkpoint checkpoint = load_checkpoint(parts.path());
    EXPECT_GE(checkpoint.global_step, 8);
    EXPECT_LT(checkpoint.global_step, 20);
    int of_others = 0;
    for (const auto& [name, state] : checkpoint.extra) of_others += name.starts_with("rank2/");
    EXPECT_GT(of_others, 0) << "random numbers of the others";
    for (const Ended& one : run_ranks_of(3, parts.path(), {.epochs = 4})) {
      ASSERT_EQ(one.status, 0) << one.output;
    }
    expect_same_weights(whole.path(), parts.path());
  }
}

TEST(RanksProcessTest, Sigusr1ToOneRankSavesACheckpointOfAllAfterTheSameStepAndTrainingGoesOn) {
  const TempDir whole;
  for (const Ended& ended : run_ranks_of(3, whole.path(), {.epochs = 4})) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  for (const int rank : {0, 2}) {
    const TempDir parts;
    const auto ended =
        run_ranks_of(3, parts.path(), {.epochs = 4, .stop = 6, .signal = SIGUSR1, .rank = rank});
    std::set<std::string> requests;
    for (const Ended& one : ended) {
      EXPECT_EQ(one.status, 0) << one.output;
      const size_t begin = one.output.find("SIGUSR1 asks for a checkpoint at global_step = ");
      ASSERT_NE(begin, std::string::npos) << one.output;
      requests.insert(one.output.substr(begin, one.output.find('\n', begin) - begin));
    }
    ASSERT_THAT(requests, testing::SizeIs(1)) << "not the same step in all";
    expect_same_weights(whole.path(), parts.path());
    // The training that it interrupted is gone on with from the checkpoint, with the same numbers.
    const std::string step =
        requests.begin()->substr(requests.begin()->rfind(' ') + 1, std::string::npos);
    const fs::path saved = parts.path() / ("model-" + step + "safetensors");
    ASSERT_TRUE(fs::exists(saved)) << saved;
    for (const auto& file : fs::directory_iterator(parts.path())) {
      if (file.path() != saved) fs::remove_all(file.path());
    }
    for (const Ended& one : run_ranks_of(3, parts.path(), {.epochs = 4})) {
      ASSERT_EQ(one.status, 0) << one.output;
    }
    expect_same_weights(whole.path(), parts.path());
  }
}

// The others wait in a step for longer than they do after a signal, which is when they get it.
TEST(RanksProcessTest, SigtermWhileTheChiefValidatesEndsAllWithACheckpointOfAll) {
  const TempDir dir;
  const Children ranks =
      start_ranks(2, {TENSORPACK_TRAIN_CHILD, "validate", dir.path().string()}, /*timeout=*/120);
  ASSERT_TRUE(ranks[0]->read_until("validating\n")) << ranks[0]->output();
  std::this_thread::sleep_for(std::chrono::seconds(27));
  for (const auto& rank : ranks) rank->send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  write_file_atomically(dir.path() / "validated", std::string_view());
  for (const auto& rank : ranks) {
    const Ended ended = wait_for(*rank);
    EXPECT_EQ(ended.status, 128 + SIGTERM) << ended.output;
  }
  EXPECT_GE(load_checkpoint(dir.path()).global_step, 5) << "after the epoch that was validated";
}

void expect_all_end_by(int signal, const Children& ranks) {
  for (const auto& rank : ranks) {
    const Ended ended = wait_for(*rank);
    EXPECT_EQ(ended.status, 128 + signal) << ended.output;
  }
}

// With the random numbers of the other rank.
void expect_checkpoint_of_both(const fs::path& dir, const testing::Matcher<int64_t>& step) {
  const Checkpoint checkpoint = load_checkpoint(dir);
  EXPECT_THAT(checkpoint.global_step, step);
  EXPECT_TRUE(std::ranges::any_of(
      checkpoint.extra, [](const auto& entry) { return entry.first.starts_with("rank1/"); }));
}

TEST(RanksProcessTest, ASignalToAllGivesUpALongValidationOfTheChiefAndAllSave) {
  for (const auto& [data, signal] : {std::pair{"stall", SIGTERM}, {"endless", SIGUSR2}}) {
    const TempDir dir;
    const Children ranks =
        start_ranks(2, {TENSORPACK_TRAIN_CHILD, "validate_data", dir.path().string(), data});
    ASSERT_TRUE(ranks[0]->read_until("validating\n")) << ranks[0]->output();
    for (const auto& rank : ranks) rank->send(signal);
    expect_all_end_by(signal, ranks);
    EXPECT_THAT(ranks[0]->output(), HasSubstr("InferenceRunner did not finish: terminated"));
    expect_checkpoint_of_both(dir.path(), AnyOf(5, 6));  // at the end of the epoch, or a step later
  }
}

// The chief has validated its own share, and the other waits for data.
TEST(RanksProcessTest, ASignalGivesUpALongValidationOfAllProcessesInAllAndAllSave) {
  for (const std::vector<size_t>& signalled : {std::vector<size_t>{0, 1}, {0}, {1}}) {
    const TempDir dir;
    const Children ranks =
        start_ranks(2, {TENSORPACK_TRAIN_CHILD, "validate_data", dir.path().string(), "last"});
    ASSERT_TRUE(ranks[1]->read_until("validating\n")) << ranks[1]->output();
    const auto start = std::chrono::steady_clock::now();
    for (const size_t rank : signalled) ranks[rank]->send(SIGTERM);
    expect_all_end_by(SIGTERM, ranks);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
    for (const auto& rank : ranks) {
      EXPECT_THAT(rank->output(), HasSubstr("InferenceRunner did not finish: terminated"));
    }
    expect_checkpoint_of_both(dir.path(), AnyOf(5, 6));
  }
}

Children start_stalled(const fs::path& dir, const std::string& whose) {
  Children ranks = start_ranks(2, {TENSORPACK_TRAIN_CHILD, "stall", dir.string(), whose});
  for (const auto& rank : ranks) {
    EXPECT_TRUE(rank->read_until("in step 4\n")) << rank->output();
  }
  return ranks;
}

TEST(RanksProcessTest, ARankThatWaitsForDataMakesTheStepThatTheOtherHasBegun) {
  for (const size_t rank : {0U, 1U}) {
    const TempDir dir;
    const Children ranks = start_stalled(dir.path(), std::to_string(rank));
    for (const auto& one : ranks) one->send(SIGTERM);
    EXPECT_TRUE(ranks[rank]->read_until("waiting up to 20 s for the data of step 4"))
        << ranks[rank]->output();
    write_file_atomically(dir.path() / "data", std::string_view());
    expect_all_end_by(SIGTERM, ranks);
    expect_checkpoint_of_both(dir.path(), 4);
  }
}

TEST(RanksProcessTest, WhenTheDataOfAllDoesNotComeTheStepBeforeIsSavedByAll) {
  for (const std::vector<size_t>& signalled : {std::vector<size_t>{0, 1}, {0}, {1}}) {
    const TempDir dir;
    const Children ranks = start_stalled(dir.path(), "all");
    for (const size_t rank : signalled) ranks[rank]->send(SIGTERM);
    expect_all_end_by(SIGTERM, ranks);
    expect_checkpoint_of_both(dir.path(), 3);
  }
}

Children start_drifting(const fs::path& dir, const std::string& how) {
  return start_ranks(2, {TENSORPACK_TRAIN_CHILD, "drift", dir.string(), how});
}

TEST(RanksProcessTest, RanksThatGoApartAreAnErrorInBothThatSaysWhere) {
  const std::pair<const char*, std::string> cases[] = {
      {"assign",
       "[assign] 'learning_rate' is set by InStep, which runs in the chief process alone"},
      {"fill",
       "ranks differ at the end of epoch 1 in what must be equal: 'learning_rate' is "
       "0.01 in rank 0, and 0.001 in rank 1"},
      {"rate", "the processes have different operators: rank 0 has 'op 'train_op', in 'dropout': "},
      {"scale", ", 1) -> "},
  };
  for (const auto& [how, message] : cases) {
    const TempDir dir;
    for (const auto& rank : start_drifting(dir.path(), how)) {
      const Ended ended = wait_for(*rank);
      EXPECT_EQ(ended.status, 1) << how;
      EXPECT_THAT(ended.output, HasSubstr(message)) << how;
    }
  }
}

TEST(RanksProcessTest, AScheduleThatTheChiefDecidesIsThatOfAll) {
  const TempDir dir;
  for (const auto& rank : start_drifting(dir.path(), "plateau")) {
    const Ended ended = wait_for(*rank);
    EXPECT_EQ(ended.status, 0) << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr("epoch 1 learning_rate 0.01\n"),
                                    HasSubstr("epoch 2 learning_rate 0.005\n"),
                                    HasSubstr("epoch 4 learning_rate 0.00125\n")));
  }
}

TEST(RanksProcessTest, AProgramTrainsSeveralTimesOneAfterTheOtherAndTwoAtOnce) {
  const TempDir dir;
  for (const auto& rank : start_ranks(2, {TENSORPACK_TRAIN_CHILD, "folds", dir.path().string()})) {
    const Ended ended = wait_for(*rank);
    EXPECT_EQ(ended.status, 0) << ended.output;
    for (int target = 1; target <= 6; ++target) {
      EXPECT_THAT(ended.output, HasSubstr(fmt::format("target {0} came to {0}.000\n", target)));
    }
  }
}

TEST(RanksProcessTest, AFullDiskAtTheChiefIsAnErrorAndNothingIsHalfWritten) {
  const TempDir disk;
  if (mount("tmpfs", disk.path().c_str(), "tmpfs", 0, "size=24k") != 0) {
    GTEST_SKIP() << "a small disk cannot be mounted: " << std::strerror(errno);
  }
  const std::vector<Ended> ended = run_ranks_of(2, disk.path() / "run");
  EXPECT_EQ(ended[0].status, 1) << ended[0].output;
  EXPECT_THAT(ended[0].output, HasSubstr("No space left on device"));
  for (const auto& file : fs::recursive_directory_iterator(disk.path())) {
    EXPECT_EQ(file.path().string().find(".tmp."), std::string::npos) << file.path();
  }
  EXPECT_THROW(load_checkpoint(disk.path() / "run"), Error);
  umount2(disk.path().c_str(), MNT_DETACH);
}

TEST(RanksProcessTest, TheLauncherRestartsAJobWhichEndsWithTheSameWeights) {
  const TempDir whole, parts;
  for (const Ended& ended : run_ranks_of(2, whole.path(), {.epochs = 4})) {
    ASSERT_EQ(ended.status, 0) << ended.output;
  }
  for (const auto& [rank, signal] : {std::pair{0, SIGKILL}, {1, SIGKILL}, {1, SIGTERM}}) {
    const TempDir dir;
    const Ended ended =
        run(Words{TENSORPACK_TP, "launch", "-n", "2", "--max-restarts", "1", "--"} +
            program(dir.path(), {.epochs = 4, .stop = 13, .signal = signal, .rank = rank}));
    EXPECT_EQ(ended.status, 0) << ended.output;
    expect_same_weights(whole.path(), dir.path());
  }
}

// Of each step of each rank, as train_child prints it.
struct Sample {
  int step = 0;
  int sample = 0;
  std::string drawn = {};
  auto operator<=>(const Sample&) const = default;
};

// What `size` ranks took, in the order of steps and ranks; of those that are killed, up to the
// checkpoint before.
std::vector<Sample> take_samples(int size, const fs::path& dir, int steps, int stop = kNotAtAll,
                                 const std::string& seed = "none") {
  const Words command = {TENSORPACK_TRAIN_CHILD, "samples", dir.string(), std::to_string(steps),
                         std::to_string(stop),   seed};
  std::vector<Sample> taken;
  const std::regex line("step ([0-9]+) sample ([0-9]+) (rng [^\n]*)");
  for (const auto& rank : start_ranks(size, command)) {
    const Ended ended = wait_for(*rank);
    EXPECT_EQ(ended.status == 0, stop == kNotAtAll) << ended.output;
    for (auto i = std::sregex_iterator(ended.output.begin(), ended.output.end(), line);
         i != std::sregex_iterator(); ++i) {
      const Sample sample{std::stoi((*i)[1]), std::stoi((*i)[2]), (*i)[3]};
      if (sample.step < stop) taken.push_back(sample);
    }
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

std::vector<Sample> operator+(std::vector<Sample> a, const std::vector<Sample>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<int> numbers_of(const std::vector<Sample>& samples) {
  std::vector<int> numbers;
  for (const Sample& sample : samples) numbers.push_back(sample.sample);
  return numbers;
}

std::vector<int> each_once() {
  std::vector<int> numbers(12);
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::set<std::string> draws_of(const std::vector<Sample>& samples) {
  std::set<std::string> draws;
  for (const Sample& sample : samples) draws.insert(sample.drawn);
  return draws;
}

TEST(RanksProcessTest, WithoutASeedEverySampleIsTakenOnceByOneOfTheRanks) {
  for (const int size : {2, 3}) {
    const TempDir dir;
    const auto samples = take_samples(size, dir.path(), 12 / size);
    EXPECT_THAT(numbers_of(samples), testing::UnorderedElementsAreArray(each_once()));
    EXPECT_THAT(draws_of(samples), testing::SizeIs(12)) << "ranks draw alike";
  }
}

TEST(RanksProcessTest, ASeedThatIsSetWhenTheDataWasMadeCountsForIt) {
  const TempDir one, other;
  const auto samples = take_samples(2, one.path(), 6, kNotAtAll, "early");
  EXPECT_THAT(numbers_of(samples), testing::UnorderedElementsAreArray(each_once()));
  EXPECT_EQ(take_samples(2, other.path(), 6, kNotAtAll, "early"), samples);
}

// In the middle of the pass, without a seed; with another number of ranks as well.
TEST(RanksProcessTest, AResumedTrainingNeitherRepeatsNorLosesSamplesWithoutASeed) {
  for (const int size : {1, 2}) {
    const TempDir dir;
    const int steps = 12 / size;
    const auto before = take_samples(size, dir.path(), steps, 4);
    ASSERT_EQ(std::ssize(before), 3 * size);
    const auto after = take_samples(size, dir.path(), steps);
    EXPECT_THAT(numbers_of(before + after), testing::UnorderedElementsAreArray(each_once()));
    EXPECT_THAT(draws_of(before + after), testing::SizeIs(12));
  }
  const TempDir dir;
  const auto by_two = take_samples(2, dir.path(), 9, 4);
  const auto by_one = take_samples(1, dir.path(), 9);
  ASSERT_EQ(std::ssize(by_one), 6);
  EXPECT_EQ(draws_of(by_two + by_one).size(), 12);
}

TEST(RanksProcessTest, CheckpointsDoNotDependOnHowManyWroteThem) {
  const TempDir dir;
  int epochs = 0;
  for (const int size : {4, 1, 2, 4}) {
    epochs += 2;
    for (const Ended& ended : run_ranks_of(size, dir.path(), {.epochs = epochs})) {
      ASSERT_EQ(ended.status, 0) << ended.output;
    }
    const Checkpoint checkpoint = load_checkpoint(dir.path());
    EXPECT_EQ(checkpoint.epoch_num, epochs);
    EXPECT_EQ(checkpoint.global_step, epochs * 5);
  }
  // Batches of all ranks: 10 steps each by 4, 1 and 2 make 70; the last 4 ranks can go on at 68,
  // and take 40 more.
  EXPECT_EQ(load_checkpoint(dir.path()).extra.at("callback/InputSourceCallback"), "108");
}

TEST(RanksProcessTest, OnlyTheChiefWritesAndEveryRankHasALogOfItsOwn) {
  const TempDir dir;
  const fs::path logs = dir.path() / "run";
  run_ranks_of(2, logs);
  EXPECT_TRUE(fs::exists(logs / "stats.json"));
  EXPECT_TRUE(fs::exists(dir.path() / "run-rank1" / "log.log"));
  EXPECT_FALSE(fs::exists(dir.path() / "run-rank1" / "stats.json"));
}

}  // namespace
}  // namespace tensorpack
