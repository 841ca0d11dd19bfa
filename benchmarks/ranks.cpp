// SPDX-License-Identifier: Apache-2.0
// Two processes that train a model together, as one side of a benchmark:
//   bench_ranks <model> <bytes of a bucket>
// The first answers as PeerProcess expects, the second makes as many steps.
#include <ATen/Parallel.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

#include "benchmarks/parallel_training.h"
#include "tensorpack/distributed/free_port.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::bench {
namespace {

constexpr int kRanks = 2;

// How many steps all ranks are to make; the first has read it. 0 at the end.
int64_t share(ProcessGroup& processes, int64_t steps) {
  return *parse_integer(processes.gather(std::to_string(steps))[0]);
}

void serve(const std::string& model, int64_t bucket_bytes, int rank, int port) {
  at::set_num_threads(1);
  const std::shared_ptr<ProcessGroup> processes =
      ProcessGroup::create({.environment = {.rank = rank,
                                            .size = kRanks,
                                            .local_rank = rank,
                                            .local_size = kRanks,
                                            .master_port = port}});
  // As many examples in a step of each as the peer has.
  ParallelTraining training(model, {.processes = processes, .bucket_bytes = bucket_bytes},
                            workload(model).batch[0] / kRanks);
  training.step();
  if (rank == 0) std::cout << "ready" << std::endl;
  for (;;) {
    int64_t steps = 0;
    if (rank == 0 && !(std::cin >> steps)) steps = 0;
    steps = share(*processes, steps);
    if (steps == 0) return;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) training.step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (rank == 0) std::cout << taken.count() << std::endl;
  }
}

}  // namespace
}  // namespace tensorpack::bench

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const int port = tensorpack::free_port();
  // Before libtorch has threads.
  const int rank = fork() == 0 ? 1 : 0;
  tensorpack::bench::serve(argv[1], std::stoll(argv[2]), rank, port);
  return 0;
}
