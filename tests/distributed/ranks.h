// SPDX-License-Identifier: Apache-2.0
// Several ranks for a test, as threads of one process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensorpack/distributed/free_port.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

inline LaunchEnvironment place_of(int rank, int size, int port) {
  return {.rank = rank,
          .size = size,
          .local_rank = rank,
          .local_size = size,
          .master_port = port,
          .launcher = "test"};
}

/// Calls `function` on a thread for each rank with a group of all, and returns what each threw, by
/// rank; an empty text for nothing.
inline std::vector<std::string> run_ranks(
    int size, std::chrono::milliseconds timeout,
    const std::function<void(std::shared_ptr<ProcessGroup>)>& function) {
  std::vector<std::string> errors(static_cast<size_t>(size));
  const int port = free_port();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        function(
            ProcessGroup::create({.environment = place_of(rank, size, port), .timeout = timeout}));
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace tensorpack
