// SPDX-License-Identifier: Apache-2.0
// One task of the GPU benchmarks: our process and those of its peers, timed in turns.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "benchmarks/bench.h"
#include "benchmarks/gpu/task.h"
#include "benchmarks/peer_process.h"

namespace tensorpack::bench {

struct ContestOptions {
  std::string device = "cuda";
  std::filesystem::path scratch = {};  ///< a folder for what the processes share
  double min_seconds = 0.4;
  int repetitions = 5;
  std::string profiles = {};  ///< a folder for traces of every side's steps, or none
};

/// Runs when its first result is asked for, with all the peers that were entered until then.
class Contest {
 public:
  Contest(GpuTask task, ContestOptions options) : task_(std::move(task)), options_(options) {}

  const GpuTask& task() const { return task_; }
  void enter(const std::string& peer) { peers_.insert(peer); }

  /// The time of a peer's step over that of ours.
  Figure ratio(const std::string& peer, const Stopwatch& watch);
  /// The time of our step.
  Figure ours(const Stopwatch& watch);
  /// The most memory a peer had in use since it started, over ours.
  Figure peak_memory_ratio(const std::string& peer, const Stopwatch& watch) {
    return memory_ratio(peer, &Result::peak_bytes, watch);
  }
  /// The most memory a peer had in use in the steps after its first, over ours.
  Figure step_memory_ratio(const std::string& peer, const Stopwatch& watch) {
    return memory_ratio(peer, &Result::step_bytes, watch);
  }
  /// The memory a peer keeps from others while it trains, over ours.
  Figure held_memory_ratio(const std::string& peer, const Stopwatch& watch) {
    return memory_ratio(peer, &Result::held_bytes, watch);
  }
  /// The least memory of the device in which a peer can train, over that of ours. Measured by
  /// processes of its own, one after the other.
  Figure least_memory_ratio(const std::string& peer) const;
  /// The CPU time in which our thread issues a step.
  Figure cpu_time(const Stopwatch& watch);
  /// Our time from nothing to the end of the first step, with the peer's.
  Figure first_step(const std::string& peer, const Stopwatch& watch);

 private:
  struct Result {
    double microseconds = 0;
    double our_microseconds = 0;  // in the same turns
    double peak_bytes = 0;
    double step_bytes = 0;
    double held_bytes = 0;
    double first_step = 0;
    std::string skipped = {};
    std::string failed = {};
  };
  using Processes = std::map<std::string, PeerProcess>;

  void run(const Stopwatch& watch);
  void run_group(const std::vector<std::string>& names, const PeerProcess& ours,
                 const Stopwatch& watch);
  Processes start(const std::vector<std::string>& names, int64_t parameters);
  // With a setting in their environment, such as "A=1", if one is given.
  PeerProcess start_peer(const std::string& name, const std::string& setting = "") const;
  PeerProcess start_ours(const std::string& task, const std::string& setting = "") const;
  void ask_for_memory(const std::string& name, const PeerProcess& process);
  void profile(const std::string& name, const PeerProcess& process) const;
  const Result& result(const std::string& name, const Stopwatch& watch);
  Figure memory_ratio(const std::string& peer, double Result::*bytes, const Stopwatch& watch);

  GpuTask task_;
  ContestOptions options_;
  std::set<std::string> peers_;
  bool done_ = false;
  std::map<std::string, Result> results_;  // "ours" and the peers
  double cpu_seconds_ = 0;                 // of one step of ours
};

}  // namespace tensorpack::bench
