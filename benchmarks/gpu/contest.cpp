// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/contest.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>

#include "benchmarks/gpu/profile.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::bench {
namespace {

constexpr const char* kOurs = "ours";
// So few that the device's queue does not fill up, which would make the thread wait.
constexpr int kStepsIssued = 5;

std::string title(const std::string& peer) {
  if (peer.starts_with(kWithout)) return "ours " + peer;
  static const std::map<std::string, std::string> titles = {
      {"eager", "PyTorch eager"},
      {"cuda_graph", "PyTorch, the step in a CUDA graph"},
      {"compile", "torch.compile"},
      {"compile_reduce_overhead", "torch.compile, reduce-overhead"},
      {"compile_max_autotune", "torch.compile, max-autotune"},
      {"jax", "JAX"},
      {"lightning", "Lightning with a DataLoader"},
      {"device_data", "ours, data on the device"},
      {"keeping", "ours, nothing made again"},
  };
  return titles.at(peer);
}

nlohmann::json facts_of(const PeerProcess& process) {
  return nlohmann::json::parse(process.facts());
}

double per_second(int64_t items, double microseconds) {
  return static_cast<double>(items) / microseconds * 1e6;
}

double median_cpu_seconds(const PeerProcess& process, int repetitions) {
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    times.push_back(process.ask(fmt::format("cpu {}", kStepsIssued)) / kStepsIssued);
  }
  std::nth_element(times.begin(), times.begin() + repetitions / 2, times.end());
  return times[static_cast<size_t>(repetitions / 2)];
}

// The share of the device's memory with which what is started so makes its first steps, within 4 %.
double least_share_of_memory(const std::function<PeerProcess(const std::string& setting)>& start) {
  const auto start_with = [&](double share) {
    start(fmt::format("PYTORCH_CUDA_ALLOC_CONF=per_process_memory_fraction:{:.6f}", share));
  };
  double too_little = 1.0 / 64, enough = 1;
  start_with(enough);
  while (enough / too_little > 1.04) {
    const double share = std::sqrt(too_little * enough);
    try {
      start_with(share);
      enough = share;
    } catch (const Skip&) {
      too_little = share;
    }
  }
  return enough;
}

}  // namespace

PeerProcess Contest::start_ours(const std::string& task, const std::string& setting) const {
  std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                      "--serve", task, "--device", options_.device};
  if (!setting.empty()) command.insert(command.begin(), {"env", setting});
  if (task_.tiny) command.emplace_back("--tiny");
  if (!options_.profiles.empty()) command.insert(command.end(), {"--profile", options_.profiles});
  return PeerProcess(std::move(command));
}

PeerProcess Contest::start_peer(const std::string& name, const std::string& setting) const {
  if (name == "device_data") return start_ours(task_.jpeg_data ? "resnet50" : "cifar128");
  if (name == "keeping") return start_ours("resnet50");
  if (name.starts_with(kWithout)) {
    return start_ours(task_.name, "TENSORPACK_BENCH_WITHOUT=" + name.substr(kWithout.size()));
  }
  std::vector<std::string> arguments = {"--task",      task_.model,
                                        "--mode",      name,
                                        "--batch",     std::to_string(task_.batch),
                                        "--size",      std::to_string(task_.size),
                                        "--precision", task_.precision,
                                        "--device",    options_.device,
                                        "--scratch",   options_.scratch.string()};
  if (task_.channels_last) arguments.emplace_back("--channels-last");
  if (task_.tiny) arguments.emplace_back("--tiny");
  return PeerProcess::python(name == "jax" ? "gpu_jax.py" : "gpu.py", std::move(arguments),
                             setting);
}

// All at once: the peers agree among themselves who may use the device.
Contest::Processes Contest::start(const std::vector<std::string>& names, int64_t parameters) {
  std::map<std::string, std::future<PeerProcess>> starting;
  for (const std::string& name : names) {
    starting.emplace(name, std::async(std::launch::async, [=, this] { return start_peer(name); }));
  }
  Processes processes;
  for (auto& [name, process] : starting) {
    try {
      processes.emplace(name, process.get());
    } catch (const Skip& skip) {
      results_[name].skipped = skip.what();
      continue;
    }
    const auto facts = facts_of(processes.at(name));
    const auto theirs = facts.at("parameters").get<int64_t>();
    results_[name].first_step = facts.value("first_step", 0.0);
    if (theirs == parameters) continue;
    results_[name].failed = fmt::format("{} has {} parameters and ours {}. Make the models equal.",
                                        title(name), theirs, parameters);
    processes.erase(name);
  }
  return processes;
}

void Contest::run_group(const std::vector<std::string>& names, const PeerProcess& ours,
                        const Stopwatch& watch) {
  const auto parameters = facts_of(ours).at("parameters").get<int64_t>();
  const Processes processes = start(names, parameters);
  AlternateOptions turns{
      .sides = {ours},
      .repetitions = options_.repetitions,
      .min_seconds = options_.min_seconds,
  };
  for (const auto& [name, process] : processes) turns.sides.emplace_back(process);
  const auto medians = watch.alternate(turns);
  results_[kOurs].microseconds = medians[0];
  size_t side = 0;
  for (const auto& [name, process] : processes) {
    results_[name].microseconds = medians[++side];
    results_[name].our_microseconds = medians[0];
    ask_for_memory(name, process);
    profile(name, process);
  }
}

void Contest::ask_for_memory(const std::string& name, const PeerProcess& process) {
  results_[name].peak_bytes = process.ask("memory");
  results_[name].step_bytes = process.ask("step_memory");
  results_[name].held_bytes = process.ask("held");
}

void Contest::profile(const std::string& name, const PeerProcess& process) const {
  if (options_.profiles.empty()) return;
  std::filesystem::create_directories(options_.profiles);
  const auto trace =
      std::filesystem::path(options_.profiles) / fmt::format("{}-{}.json", task_.name, name);
  process.ask("profile " + trace.string());
  if (!std::filesystem::exists(trace)) return;  // Lightning's loop cannot be interrupted for it
  fmt::print("# a step of {}, {}\n{}", task_.name, name, kernel_table(trace));
}

void Contest::run(const Stopwatch& watch) {
  if (std::exchange(done_, true)) return;
  // Alone, before the peers: what it finds out about the device's kernels must not be disturbed.
  const PeerProcess ours = start_ours(task_.name);
  const auto facts = facts_of(ours);
  fmt::print("# {}: {} parameters, {} {} a step\n", task_.name,
             facts.at("parameters").get<int64_t>(), task_.items(), task_.item_name());
  std::fflush(stdout);
  std::vector<std::string> chosen;
  for (const std::string& peer : task_.peers) {
    if (peers_.contains(peer)) chosen.push_back(peer);
  }
  size_t begin = 0;
  do {
    const size_t end = std::min(chosen.size(), begin + task_.at_once);
    const auto at = [&](size_t i) { return chosen.begin() + static_cast<std::ptrdiff_t>(i); };
    run_group({at(begin), at(end)}, ours, watch);
    begin = end;
  } while (begin < chosen.size());
  ask_for_memory(kOurs, ours);
  profile(kOurs, ours);
  cpu_seconds_ = median_cpu_seconds(ours, watch.repetitions(options_.repetitions));
}

const Contest::Result& Contest::result(const std::string& name, const Stopwatch& watch) {
  run(watch);
  const auto found = results_.find(name);
  TP_CHECK(found != results_.end(), "bench", "{} did not start. See what it printed.", name);
  if (!found->second.skipped.empty()) throw Skip(found->second.skipped);
  TP_CHECK(found->second.failed.empty(), "bench", "{}", found->second.failed);
  return found->second;
}

Figure Contest::ratio(const std::string& peer, const Stopwatch& watch) {
  const Result& theirs = result(peer, watch);
  return {
      .value = theirs.microseconds / theirs.our_microseconds,
      .ours = theirs.our_microseconds,
      .peer = theirs.microseconds,
      .peer_name = title(peer),
      .repetitions = watch.repetitions(options_.repetitions),
      .note = fmt::format("{:.0f} against {:.0f} {}/s",
                          per_second(task_.items(), theirs.our_microseconds),
                          per_second(task_.items(), theirs.microseconds), task_.item_name()),
  };
}

Figure Contest::ours(const Stopwatch& watch) {
  const double time = result(kOurs, watch).microseconds;
  return {
      .value = time,
      .unit = "us",
      .ours = time,
      .repetitions = watch.repetitions(options_.repetitions),
      .note = fmt::format("{:.0f} {}/s", per_second(task_.items(), time), task_.item_name()),
  };
}

Figure Contest::memory_ratio(const std::string& peer, double Result::*bytes,
                             const Stopwatch& watch) {
  const double theirs = result(peer, watch).*bytes;
  const double ours = result(kOurs, watch).*bytes;
  if (ours == 0 || theirs == 0) throw Skip("libtorch does not tell how much memory is used");
  return {
      .value = theirs / ours,
      .peer_name = title(peer),
      .note = fmt::format("{:.2f} against {:.2f} GB", ours / 1e9, theirs / 1e9),
  };
}

Figure Contest::least_memory_ratio(const std::string& peer) const {
  if (options_.device != "cuda") throw Skip("only a GPU's memory can be limited");
  const double ours = least_share_of_memory(
      [&](const std::string& setting) { return start_ours(task_.name, setting); });
  const double theirs =
      least_share_of_memory([&](const std::string& setting) { return start_peer(peer, setting); });
  return {
      .value = theirs / ours,
      .peer_name = title(peer),
      .note =
          fmt::format("{:.2f} against {:.2f} % of the device's memory", 100 * ours, 100 * theirs),
  };
}

Figure Contest::cpu_time(const Stopwatch& watch) {
  result(kOurs, watch);
  return {
      .value = cpu_seconds_ * 1e3,
      .unit = "ms",
      .ours = cpu_seconds_ * 1e6,
      .repetitions = watch.repetitions(options_.repetitions),
  };
}

Figure Contest::first_step(const std::string& peer, const Stopwatch& watch) {
  const double theirs = result(peer, watch).first_step;
  // Once more: the first process on a machine has to read cuDNN's kernels from the disk.
  const double ours = facts_of(start_ours(task_.name)).at("first_step");
  return {
      .value = ours,
      .unit = "s",
      .ours = ours * 1e6,
      .peer = theirs * 1e6,
      .peer_name = title(peer),
  };
}

}  // namespace tensorpack::bench
