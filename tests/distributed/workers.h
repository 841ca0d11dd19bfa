// SPDX-License-Identifier: Apache-2.0
// Several ranks for a test, as processes that are told their places by variables.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/distributed/ranks.h"
#include "tests/support/child_process.h"

namespace tensorpack {

/// Starts the worker program `size` times, or only the first `started` ranks, with more variables
/// if there are some.
inline std::vector<std::unique_ptr<ChildProcess>> start_workers(
    int size, const std::vector<std::string>& arguments, int port = free_port(),
    const std::vector<std::string>& variables = {}, std::optional<int> started = {}) {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  for (int rank = 0; rank < started.value_or(size); ++rank) {
    std::vector<std::string> command = {"/usr/bin/env",
                                        "RANK=" + std::to_string(rank),
                                        "WORLD_SIZE=" + std::to_string(size),
                                        "MASTER_ADDR=127.0.0.1",
                                        "MASTER_PORT=" + std::to_string(port),
                                        "OMP_NUM_THREADS=1"};
    command.insert(command.end(), variables.begin(), variables.end());
    command.push_back(TENSORPACK_DISTRIBUTED_WORKER);
    command.insert(command.end(), arguments.begin(), arguments.end());
    workers.push_back(std::make_unique<ChildProcess>(command));
  }
  return workers;
}

}  // namespace tensorpack
