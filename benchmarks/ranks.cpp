// SPDX-License-Identifier: Apache-2.0
// Two processes that train a model together, as one side of a benchmark:
//   bench_ranks <model> <bytes of a bucket> [<rate of the network, as tc takes it>]
// The first answers as PeerProcess expects, the second does the same: `<n>`, the seconds of n
// steps; `sum <bytes>`, the seconds of a sum of so many bytes over both.
#include <ATen/core/ivalue.h>  // as in tensorpack.h
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include "benchmarks/parallel_training.h"
#include "tensorpack/distributed/free_port.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::bench {
namespace {

constexpr int kRanks = 2;

// As a launcher does.
void tell_place(int rank, int port) {
  const std::map<const char*, int> variables = {
      {"TENSORPACK_RANK", rank},        {"TENSORPACK_SIZE", kRanks},
      {"TENSORPACK_LOCAL_RANK", rank},  {"TENSORPACK_LOCAL_SIZE", kRanks},
      {"TENSORPACK_MASTER_PORT", port},
  };
  for (const auto& [name, value] : variables) setenv(name, std::to_string(value).c_str(), 1);
}

// On the loopback a message is a copy by the CPU. With a rate it takes time, as a network does, in
// which the CPU is free. Returns whether it is permitted.
bool limit_network(const std::string& rate) {
  const std::string command =
      "ip link set lo up && tc qdisc add dev lo root tbf latency 1s burst 1mb rate " + rate;
  return unshare(CLONE_NEWNET) == 0 && std::system(command.c_str()) == 0;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double seconds_of_sum(ProcessGroup& processes, int64_t bytes) {
  const at::Tensor tensor = at::zeros({bytes / 4});
  const int64_t sums = std::clamp<int64_t>((64 << 20) / bytes, 3, 200);
  const auto sum = [&] { processes.all_reduce(tensor)->wait(); };
  sum();
  return seconds_of([&] {
           for (int64_t i = 0; i < sums; ++i) sum();
         }) /
         static_cast<double>(sums);
}

void serve(const std::string& model, int64_t bucket_bytes, int rank, int port) {
  logging::set_level(logging::Level::kError);  // the answers are on the same stream
  tell_place(rank, port);
  tune_process();
  const std::shared_ptr<ProcessGroup> processes = ProcessGroup::create();
  // As many examples in a step of each as the peer has.
  ParallelTraining training(model, {.processes = processes, .bucket_bytes = bucket_bytes},
                            workload(model).batch[0] / kRanks);
  training.step();
  if (rank == 0) std::cout << "ready" << std::endl;
  for (;;) {
    std::string request;
    if (rank == 0) std::getline(std::cin, request);
    request = processes->all_gather(request)[0];
    if (request.empty()) return;
    const bool is_sum = request.starts_with("sum ");
    const int64_t number = *parse_integer(request.substr(is_sum ? 4 : 0));
    const double seconds = is_sum ? seconds_of_sum(*processes, number) : seconds_of([&] {
      for (int64_t i = 0; i < number; ++i) training.step();
    });
    if (rank == 0) std::cout << seconds << std::endl;
  }
}

}  // namespace
}  // namespace tensorpack::bench

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  if (argc > 3 && !tensorpack::bench::limit_network(argv[3])) {
    std::cout << "skip: a network of " << argv[3] << " needs root, ip and tc" << std::endl;
    return 0;
  }
  const int port = tensorpack::free_port();
  // Before libtorch has threads.
  const int rank = fork() == 0 ? 1 : 0;
  tensorpack::bench::serve(argv[1], std::stoll(argv[2]), rank, port);
  return 0;
}
