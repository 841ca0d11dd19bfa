// SPDX-License-Identifier: Apache-2.0
// Kills a training again and again, resumes it, and compares what comes out with a training that
// was left alone: variables, states, statistics and recorded costs must be the same bits.
//
//   soak [--kills 200] [--seed 1] [--power-cut] [--small] [--ranks 1]
//
// The training is the example on Fashion-MNIST; with --small it is one of a second. With
// --power-cut only what was synchronized to the disk is there after a kill; with --ranks a small
// training is made by several processes, one of which is killed: the others must end by themselves.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <regex>
#include <sstream>
#include <thread>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/train/run_main.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"
#include "tests/support/repeatable_stats.h"

using namespace tensorpack;  // NOLINT: a program
namespace fs = std::filesystem;

namespace {

struct Flags {
  int64_t kills = 200;
  int64_t seed = 1;
  int64_t ranks = 1;
  bool small = false;
  bool power_cut = false;
};

Flags parse(const std::vector<std::string>& words) {
  Flags flags;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool has_number = i + 1 < words.size() && parse_integer(words[i + 1]).has_value();
    if (word == "--small" || word == "--power-cut") {
      (word == "--small" ? flags.small : flags.power_cut) = true;
      continue;
    }
    const std::map<std::string, int64_t*> numbers = {
        {"--kills", &flags.kills}, {"--seed", &flags.seed}, {"--ranks", &flags.ranks}};
    TP_CHECK(has_number && numbers.contains(word), "soak",
             "'{}' is not understood. Usage: soak [--kills N] [--seed N] [--power-cut] [--small] "
             "[--ranks N].",
             word);
    *numbers.at(word) = std::stoll(words[++i]);
  }
  flags.small |= flags.ranks > 1;
  return flags;
}

std::vector<std::string> program(bool small, const fs::path& dir) {
  if (small) return {TENSORPACK_TRAIN_CHILD, "resume", dir.string(), "8", "1000000", "15"};
  return {
      TENSORPACK_EXAMPLES "/fashion_mnist", "--resume", "--epochs", "3", "--logdir", dir.string()};
}

std::vector<std::string> command(int64_t ranks, bool small, const fs::path& dir) {
  std::vector<std::string> words;
  if (ranks > 1)
    words = {TENSORPACK_TP, "launch", "-n", std::to_string(ranks), "--grace", "3", "--"};
  for (std::string& word : program(small, dir)) words.push_back(std::move(word));
  return words;
}

// The processes that a process has started.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  std::istringstream text(read_file(fmt::format("/proc/{0}/task/{0}/children", parent)));
  for (pid_t child = 0; text >> child;) children.push_back(child);
  return children;
}

// A training whose output is appended to a file.
struct Training {
  int64_t ranks = 1;
  bool small = false;
  bool power_cut = false;
  fs::path dir = {};

  fs::path output() const { return dir.string() + ".log"; }
  fs::path on_disk() const { return dir.string() + ".on_disk"; }

  pid_t start() const {
    std::vector<std::string> words = command(ranks, small, dir);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = ::fork();
    if (child != 0) return child;
    const int fd = ::open(output().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    ::dup2(fd, STDOUT_FILENO);
    ::dup2(fd, STDERR_FILENO);
    if (power_cut) {
      ::setenv("LD_PRELOAD", TENSORPACK_POWER_CUT, 1);
      ::setenv("POWER_CUT_DIR", dir.c_str(), 1);
      ::setenv("POWER_CUT_COPY", on_disk().c_str(), 1);
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  // Forgets what was not synchronized to the disk.
  void cut_power() const {
    if (!power_cut) return;
    fs::remove_all(dir);
    if (fs::exists(on_disk())) fs::rename(on_disk(), dir);
  }

  void remove() const {
    for (const fs::path& path : {dir, output(), on_disk()}) fs::remove_all(path);
  }
};

bool is_saving(const fs::path& dir) {
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(dir, ignored)) {
    if (file.path().filename().string().find(".tmp.") != std::string::npos) return true;
  }
  return false;
}

// Kills the process, or any of the ranks that it has started. False if there is none yet.
bool kill_one(const Training& training, pid_t process, std::mt19937_64& random) {
  if (training.ranks == 1) return ::kill(process, SIGKILL) == 0;
  const std::vector<pid_t> ranks = children_of(process);
  return !ranks.empty() && ::kill(ranks[random() % ranks.size()], SIGKILL) == 0;
}

// Runs until `is_time` says that it is to be killed: true if it came to its end.
bool run(const Training& training, std::mt19937_64& random, const std::function<bool()>& is_time) {
  const pid_t child = training.start();
  int status = 0;
  bool is_killed = false;
  while (::waitpid(child, &status, WNOHANG) == 0) {
    if (!is_killed && is_time()) is_killed = kill_one(training, child, random);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  training.cut_power();
  if (is_killed && status != 0) return false;
  TP_CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "soak",
           "the training ended with status {}:\n{}", status, read_file(training.output()));
  return true;
}

// Half of the kills come while something is being saved, the others at any time.
std::function<bool()> random_moment(std::mt19937_64& random, const fs::path& dir, double seconds) {
  std::uniform_real_distribution<double> uniform(0, 1);
  if (uniform(random) < 0.5) {
    return [timer = Timer(), limit = uniform(random) * seconds] { return timer.seconds() > limit; };
  }
  const int saves = static_cast<int>(uniform(random) * 4);
  return [&random, dir, left = saves]() mutable {
    if (!is_saving(dir) || left-- > 0) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    return true;
  };
}

// The recorded cost of every step. One that was made twice must have cost the same.
std::map<std::string, std::string> costs_in(const fs::path& output) {
  std::map<std::string, std::string> costs;
  const std::string text = read_file(output);
  const std::regex line("(step [0-9.]+) cost (\\S+)\n");
  for (auto i = std::sregex_iterator(text.begin(), text.end(), line); i != std::sregex_iterator();
       ++i) {
    const auto [found, is_new] = costs.emplace((*i)[1], (*i)[2]);
    TP_CHECK(is_new || found->second == (*i)[2], "soak", "{} cost {} and then {}.", found->first,
             found->second, (*i)[2].str());
  }
  return costs;
}

void compare(const fs::path& alone, const fs::path& killed) {
  const Checkpoint a = load_checkpoint(alone);
  const Checkpoint b = load_checkpoint(killed);
  TP_CHECK(a.global_step == b.global_step && a.epoch_num == b.epoch_num, "soak",
           "one ends with step {}, the other with {}.", a.global_step, b.global_step);
  for (const auto& [name, state] : a.extra) {
    const auto found = b.extra.find(name);
    TP_CHECK(found != b.extra.end() && found->second == state, "soak", "the state '{}' differs.",
             name);
  }
  TP_CHECK(a.extra.size() == b.extra.size() && a.variables.size() == b.variables.size(), "soak",
           "one has states or variables that the other does not have.");
  for (const auto& [name, value] : a.variables) {
    TP_CHECK(at::equal(value, b.variables.at(name)), "soak", "'{}' differs.", name);
  }
  TP_CHECK(repeatable_stats(alone) == repeatable_stats(killed), "soak", "the statistics differ.");
}

void soak(const Flags& flags) {
  const TempDir work;
  const Training alone{.ranks = flags.ranks, .small = flags.small, .dir = work / "alone"};
  const Training killed{.ranks = flags.ranks,
                        .small = flags.small,
                        .power_cut = flags.power_cut,
                        .dir = work / "killed"};
  std::mt19937_64 random(static_cast<uint64_t>(flags.seed));
  Timer timer;
  run(alone, random, [] { return false; });
  const double seconds = timer.seconds();
  const auto costs = costs_in(alone.output());
  fmt::print("{:.1f} seconds alone, {} recorded costs\n", seconds, costs.size());

  int64_t finished = 0;
  bool is_finished = false;
  for (int64_t kills = 0; kills < flags.kills || !is_finished;) {
    const bool may_kill = kills < flags.kills;
    const auto moment = random_moment(random, killed.dir, seconds);
    is_finished = run(killed, random, [&] { return may_kill && moment(); });
    if (!is_finished) {
      ++kills;
      continue;
    }
    compare(alone.dir, killed.dir);
    TP_CHECK(costs_in(killed.output()) == costs, "soak", "the recorded costs differ.");
    ++finished;
    fmt::print("{} kills, {} trainings finished, all equal\n", kills, finished);
    killed.remove();
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run_main([&] { soak(parse({argv + 1, argv + argc})); });
}
