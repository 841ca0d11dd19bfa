// SPDX-License-Identifier: Apache-2.0
// Several towers and several processes, on the cores of one machine.
#include <algorithm>
#include <filesystem>

#include "benchmarks/groups.h"
#include "benchmarks/parallel_training.h"
#include "benchmarks/peer_process.h"

namespace tensorpack::bench {
namespace {

// The same number of examples in a step, on the same cores.
Figure two_towers(const Stopwatch& watch, const std::string& model) {
  ParallelTraining two(model, {.devices = Devices::cpu(2)});
  ParallelTraining one(model, {});
  return watch.compare({
      .ours = [&] { two.step(); },
      .peer = [&] { one.step(); },
      .peer_name = "one tower with all cores",
  });
}

// Two processes of ours, of one thread each, which count as one side.
PeerProcess two_ranks(const std::string& model, int64_t bucket_bytes,
                      const std::vector<std::string>& network = {}) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> command = {(program / "bench_ranks").string(), model,
                                      std::to_string(bucket_bytes)};
  command.insert(command.end(), network.begin(), network.end());
  return PeerProcess(command);
}

Figure against_python_ddp(const Stopwatch& watch, const std::string& model) {
  return watch.compare({
      .ours = two_ranks(model, kDefaultBucketBytes),
      .peer = PeerProcess::python("ddp.py", {model}),
      .peer_name = "python3-torch, DistributedDataParallel over Gloo",
  });
}

Figure overlap(const Stopwatch& watch, const std::vector<std::string>& network = {}) {
  return watch.compare({
      .ours = two_ranks("wide_mlp", kDefaultBucketBytes, network),
      .peer = two_ranks("wide_mlp", int64_t{1} << 40, network),
      .peer_name = "all gradients exchanged at the end, at once",
  });
}

// What an exchange costs by itself; with docs/tutorial/distributed.md a model of larger jobs.
Figure sum_between_two(const Stopwatch&, int64_t bytes) {
  const PeerProcess ranks = two_ranks("mlp64", kDefaultBucketBytes);
  std::vector<double> seconds;
  for (int i = 0; i < 5; ++i) seconds.push_back(ranks.ask("sum " + std::to_string(bytes)));
  std::sort(seconds.begin(), seconds.end());
  return {.value = seconds[2] * 1e6, .unit = "us", .repetitions = 5};
}

Figure empty_step(const Stopwatch& watch) {
  Graph graph;
  std::vector<Op> towers;
  for (int i = 0; i < 2; ++i) {
    towers.push_back(graph.define(
        {.name = "tower" + std::to_string(i), .body = [](const auto&) { return NamedTensors(); }}));
  }
  const Op op = Op::parallel("step", towers);
  Session session(graph);
  return watch.measure({.step = [&] { session.run(op); }});
}

}  // namespace

void add_parallel_benchmarks(Suite& suite) {
  for (const char* model : {"lenet", "resnet18"}) {
    suite.add(std::string("parallel/two_towers_vs_one_") + model,
              [model](const Stopwatch& watch) { return two_towers(watch, model); });
  }
  suite.add("parallel/two_ranks_vs_python_ddp",
            [](const Stopwatch& watch) { return against_python_ddp(watch, "lenet"); });
  for (const char* model : {"mlp64", "wide_mlp"}) {
    suite.add(std::string("parallel/two_ranks_vs_python_ddp_") + model,
              [model](const Stopwatch& watch) { return against_python_ddp(watch, model); });
  }
  // Both directions share the rate: as 2.5 gigabits each way.
  suite.add("parallel/overlap_vs_none",
            [](const Stopwatch& watch) { return overlap(watch, {"5gbit"}); });
  suite.add("parallel/overlap_vs_none_on_loopback",
            [](const Stopwatch& watch) { return overlap(watch); });
  suite.add("parallel/empty_step_us", empty_step);
  for (const int64_t kilobytes : {4, 256, 4096, 65536}) {
    suite.add(
        "parallel/sum_of_" + std::to_string(kilobytes) + "kB_us",
        [kilobytes](const Stopwatch& watch) { return sum_between_two(watch, kilobytes << 10); });
  }
}

}  // namespace tensorpack::bench
