// SPDX-License-Identifier: Apache-2.0
// Training steps on a GPU against PyTorch's ways to make them.
#include <fmt/core.h>
#include <torch/cuda.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>

#include "benchmarks/gpu/accuracy.h"
#include "benchmarks/gpu/contest.h"
#include "benchmarks/gpu/fused.h"
#include "benchmarks/gpu/jpeg.h"
#include "benchmarks/gpu/serve.h"
#include "benchmarks/gpu/towers.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::bench {
namespace {

struct Flags {
  SuiteOptions suite;
  ContestOptions contest;
  std::vector<std::string> peers;  // empty: all
  std::string serve;
  AccuracyRun accuracy;
  bool unfused = false;
  bool tiny = false;
  bool list = false;
};

// A folder that is removed in the end.
class ScratchFolder {
 public:
  ScratchFolder()
      : path_(std::filesystem::temp_directory_path() / fmt::format("bench_gpu-{}", getpid())) {
    std::filesystem::create_directories(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Adds entries, and enters into the contests those peers that the chosen entries need.
class Program {
 public:
  Program(Suite& suite, const Flags& flags) : suite_(suite), flags_(flags) {}

  void add(GpuTask task) {
    for (const std::string& peer : flags_.peers) {
      if (peer.starts_with(kWithout)) task.peers.push_back(peer);
    }
    auto contest = std::make_shared<Contest>(task, flags_.contest);
    for (const std::string& peer : task.peers) {
      add(entry_name(task, peer), contest, peer,
          [=](const Stopwatch& watch) { return contest->ratio(peer, watch); });
    }
    if (task.name == "resnet50") add_further(contest);
    if (task.recompute) {
      for (const std::string& peer : task.peers) add_memory(contest, peer);
    }
    if (flags_.peers == std::vector<std::string>{"none"}) {
      suite_.add("gpu/" + task.name + "_step_us",
                 [=](const Stopwatch& watch) { return contest->ours(watch); });
    }
  }

 private:
  static std::string entry_name(const GpuTask& task, const std::string& peer) {
    if (task.host_data && peer == "device_data") return "gpu/cifar128_host_vs_device_data";
    if (peer.starts_with(kWithout)) {
      return fmt::format("gpu/{}_vs_without_{}", task.name, peer.substr(kWithout.size()));
    }
    return fmt::format("gpu/{}_vs_{}", task.name, peer);
  }

  void add_further(const std::shared_ptr<Contest>& contest) {
    const std::string task = "gpu/" + contest->task().name;
    add_memory(contest, "eager");
    add(task + "_least_memory_vs_eager", contest, "eager",
        [=](const Stopwatch&) { return contest->least_memory_ratio("eager"); });
    add(task + "_seconds_to_first_step", contest, "compile",
        [=](const Stopwatch& watch) { return contest->first_step("compile", watch); });
    suite_.add(task + "_cpu_ms_per_step",
               [=](const Stopwatch& watch) { return contest->cpu_time(watch); });
  }

  void add_memory(const std::shared_ptr<Contest>& contest, const std::string& peer) {
    const auto name = [&](const char* which) {
      return fmt::format("gpu/{}_{}_memory_vs_{}", contest->task().name, which, peer);
    };
    add(name("peak"), contest, peer,
        [=](const Stopwatch& watch) { return contest->peak_memory_ratio(peer, watch); });
    add(name("step"), contest, peer,
        [=](const Stopwatch& watch) { return contest->step_memory_ratio(peer, watch); });
    add(name("held"), contest, peer,
        [=](const Stopwatch& watch) { return contest->held_memory_ratio(peer, watch); });
  }

  void add(const std::string& name, const std::shared_ptr<Contest>& contest,
           const std::string& peer, Suite::Entry entry) {
    const auto& peers = flags_.peers;
    if (!peers.empty() && std::find(peers.begin(), peers.end(), peer) == peers.end()) return;
    if (name.find(flags_.suite.filter) != std::string::npos) contest->enter(peer);
    suite_.add(name, std::move(entry));
  }

  Suite& suite_;
  const Flags& flags_;
};

void add_options(CLI::App& app, Flags& flags) {
  app.add_option("--filter", flags.suite.filter, "Run the benchmarks whose name contains this");
  app.add_option(
         "--peers", flags.peers,
         "Compare with these alone (eager,cuda_graph,compile,compile_reduce_overhead,"
         "compile_max_autotune,jax,lightning,device_data,keeping), with `none`, or with ours "
         "without a pass (without:side_stream)")
      ->delimiter(',');
  app.add_option("--repetitions", flags.contest.repetitions, "Repetitions of each side")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--min-seconds", flags.contest.min_seconds, "How long a repetition takes")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--json", flags.suite.json_path, "Write the results to this file");
  app.add_option("--device", flags.contest.device, "Where to train")
      ->capture_default_str()
      ->check(CLI::IsMember({"cuda", "cpu"}));
  app.add_option("--profile", flags.contest.profiles,
                 "Write a trace of each side's steps to this folder, and print the longest kernels "
                 "and the parts of our first step");
  app.add_flag("--tiny", flags.tiny, "Train on next to nothing, to test the benchmarks themselves");
  app.add_flag("--list", flags.list, "List the names and leave");
  app.add_option("--serve", flags.serve, "Be our side of this task")->group("");
  app.add_option("--accuracy", flags.accuracy.model, "Train this model, to see how well")
      ->group("");
  app.add_option("--seed", flags.accuracy.seed)->group("");
  app.add_flag("--unfused", flags.unfused)->group("");
}

void serve(const Flags& flags) {
  if (!flags.contest.profiles.empty()) logging::set_level(logging::Level::kDebug);
  const c10::Device device(flags.contest.device == "cuda" ? "cuda:0" : "cpu");
  for (const GpuTask& task : gpu_tasks(flags.tiny)) {
    if (task.name == flags.serve) return serve_gpu_task(task, device);
  }
  throw make_error("bench", "there is no task '{}'. See --list.", flags.serve);
}

int run(int argc, char** argv) {
  Flags flags;
  CLI::App app("Training steps on a GPU against PyTorch; ratios above 1 mean that we are faster.");
  add_options(app, flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!flags.list && flags.contest.device == "cuda" && !torch::cuda::is_available()) {
    fmt::print("skipped: this libtorch has no CUDA, or there is no device for it\n");
    return 0;
  }
  if (!flags.serve.empty()) {
    serve(flags);
    return 0;
  }
  if (!flags.accuracy.model.empty()) {
    flags.accuracy.fused = !flags.unfused;
    serve_accuracy(flags.accuracy, c10::Device(flags.contest.device));
    return 0;
  }

  TP_CHECK(flags.contest.profiles.empty() || flags.contest.device == "cuda", "bench",
           "--profile shows the kernels of a GPU, and the device is the {}. Use --device cuda.",
           flags.contest.device);

  const ScratchFolder scratch;
  flags.contest.scratch = scratch.path();
  Suite suite;
  Program program(suite, flags);
  for (const GpuTask& task : gpu_tasks(flags.tiny)) program.add(task);
  if (flags.list || flags.contest.device == "cuda") {
    add_fused_benchmarks(suite);
    add_jpeg_benchmarks(suite);
    add_towers_benchmarks(suite);
    add_accuracy_benchmarks(suite);
  }
  if (flags.list) {
    for (const auto& name : suite.names()) fmt::print("{}\n", name);
    return 0;
  }
  return suite.run(flags.suite);
}

}  // namespace
}  // namespace tensorpack::bench

int main(int argc, char** argv) {
  try {
    return tensorpack::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
