// SPDX-License-Identifier: Apache-2.0
// Several ranks for a test, as threads of one process.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tensorpack/distributed/process_group.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

inline int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

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
