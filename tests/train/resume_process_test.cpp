// SPDX-License-Identifier: Apache-2.0
// A training that is broken off and resumed gives the numbers it would have given without.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <regex>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"
#include "tests/support/repeatable_stats.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Trains in a process of its own; the lines that say what was computed.
struct ChildRun {
  int status = 0;
  std::vector<std::string> lines;
  std::string output;
};

constexpr int kNever = 1'000'000;

ChildRun run_child(std::vector<std::string> words) {
  words.insert(words.begin(), TENSORPACK_TRAIN_CHILD);
  ChildProcess child(std::move(words));
  ChildRun run{.status = child.wait(), .lines = {}, .output = child.output()};
  const std::regex line("(step [0-9.]+ cost|end of epoch) [^\n]*");
  for (auto i = std::sregex_iterator(run.output.begin(), run.output.end(), line);
       i != std::sregex_iterator(); ++i) {
    run.lines.push_back(i->str());
  }
  return run;
}

ChildRun train(const fs::path& dir, int epochs, int stop_at_step = kNever, int signal = SIGTERM) {
  return run_child({"resume", dir.string(), std::to_string(epochs), std::to_string(stop_at_step),
                    std::to_string(signal)});
}

void expect_same_checkpoint(const fs::path& a, const fs::path& b) {
  const Checkpoint one = load_checkpoint(a);
  const Checkpoint other = load_checkpoint(b);
  EXPECT_EQ(one.global_step, other.global_step);
  EXPECT_EQ(one.epoch_num, other.epoch_num);
  EXPECT_EQ(one.extra, other.extra);
  ASSERT_EQ(one.variables.size(), other.variables.size());
  for (const auto& [name, value] : one.variables) {
    EXPECT_TRUE(at::equal(value, other.variables.at(name))) << name;
  }
}

// The checkpoint and the statistics.
void expect_same_results(const fs::path& a, const fs::path& b) {
  expect_same_checkpoint(a, b);
  EXPECT_EQ(repeatable_stats(a), repeatable_stats(b));
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(ResumeProcessTest, SixEpochsEqualThreeAndThree) {
  const TempDir whole, parts;
  const ChildRun six = train(whole.path(), 6);
  const ChildRun three = train(parts.path(), 3);
  const ChildRun resumed = train(parts.path(), 6);
  EXPECT_EQ(six.status, 0) << six.output;
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_EQ(six.lines.size(), 36) << six.output;
  EXPECT_EQ(three.lines.size(), 18) << three.output;
  EXPECT_EQ(joined(three.lines, resumed.lines), six.lines);
  expect_same_results(whole.path(), parts.path());
}

TEST(ResumeProcessTest, ATerminatedEpochIsFinished) {
  const TempDir whole, parts;
  const ChildRun four = train(whole.path(), 4);
  const ChildRun terminated = train(parts.path(), 4, /*stop_at_step=*/8);
  EXPECT_EQ(terminated.status, 143);
  EXPECT_EQ(load_checkpoint(parts.path()).global_step, 8);
  const ChildRun again = train(parts.path(), 4, /*stop_at_step=*/10);  // the last step of epoch 2
  EXPECT_THAT(again.output, HasSubstr("with epoch 2, step 3 of it"));
  const ChildRun resumed = train(parts.path(), 4);
  EXPECT_THAT(resumed.output, HasSubstr("with epoch 2, step 5 of it"));
  EXPECT_EQ(joined(joined(terminated.lines, again.lines), resumed.lines), four.lines);
  expect_same_results(whole.path(), parts.path());
}

// In the middle of an epoch, and at its end between the saver and the monitors.
TEST(ResumeProcessTest, AKilledTrainingLosesNothing) {
  const TempDir whole, parts;
  const ChildRun four = train(whole.path(), 4);
  for (const int stop : {8, -2, -3}) {
    const ChildRun killed = train(parts.path(), 4, stop, SIGKILL);
    EXPECT_EQ(killed.status, 1000 + SIGKILL) << killed.output;
  }
  const ChildRun resumed = train(parts.path(), 4);
  EXPECT_EQ(resumed.status, 0) << resumed.output;
  EXPECT_THAT(four.lines, testing::IsSupersetOf(resumed.lines));
  expect_same_results(whole.path(), parts.path());
}

// The network drops out, and its data is shuffled.
TEST(SeedProcessTest, TheSeedThatTheLogTellsRepeatsTheRun) {
  const TempDir drawn, again, other;
  const ChildRun first = run_child({"seed", drawn.path(), "none"});
  std::smatch told;
  ASSERT_TRUE(std::regex_search(first.output, told,
                                std::regex("set_global_seed\\(([0-9]+)\\) repeats this run")))
      << first.output;
  EXPECT_EQ(first.lines.size(), 12) << first.output;
  EXPECT_EQ(run_child({"seed", again.path(), told[1]}).lines, first.lines);
  EXPECT_NE(run_child({"seed", other.path(), "none"}).lines, first.lines);
}

// Each process draws a seed of its own, which makes no other program of it.
TEST(SeedProcessTest, AProgramWithoutASeedIsTheSameWhenItIsResumed) {
  const TempDir dir;
  const auto take_samples = [&](int stop, const char* seed) {
    return run_child({"samples", dir.path(), "9", std::to_string(stop), seed}).output;
  };
  take_samples(4, "none");
  const std::string resumed = take_samples(7, "none");
  EXPECT_THAT(resumed, testing::AllOf(HasSubstr("Resuming from"),
                                      testing::Not(HasSubstr("The program has changed"))));
  EXPECT_THAT(take_samples(8, "libtorch"), HasSubstr("\n  seed was drawn, is 8"));
  EXPECT_THAT(take_samples(kNever, "early"), HasSubstr("\n  seed was drawn, is 7"));
}

// As it was written before there were seeds in checkpoints.
TEST(SeedProcessTest, ACheckpointWithoutASeedIsAWarningInMidEpochUnlessOneIsSet) {
  const TempDir dir;
  const auto take_samples = [&](int stop, const char* seed) {
    return run_child({"samples", dir.path(), "9", std::to_string(stop), seed}).output;
  };
  take_samples(4, "none");
  const fs::path file = dir / "model-3.safetensors";
  SafetensorsFile old = read_safetensors(file);
  old.metadata.at("tensorpack_checkpoint") = "1";
  for (const char* key : {"extra/seed", "fingerprint", "xxh64_metadata", "xxh64_tensors"}) {
    EXPECT_EQ(old.metadata.erase(key), 1) << key;
  }
  write_safetensors(file, old.tensors, old.metadata);
  const char* warning = "does not say which seed its data followed from, and none is set";
  EXPECT_THAT(take_samples(4, "early"),
              testing::AllOf(HasSubstr("Resuming from"), testing::Not(HasSubstr(warning))));
  EXPECT_THAT(take_samples(4, "none"), HasSubstr(warning));
}

}  // namespace
}  // namespace tensorpack
