// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace tensorpack::bench {

/// While it lives, nothing is printed: what a training says must not run through the table of
/// results.
class Silence {
 public:
  Silence() : stdout_(dup(STDOUT_FILENO)), stderr_(dup(STDERR_FILENO)) {
    const int nowhere = open("/dev/null", O_WRONLY);
    std::fflush(stdout);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    close(nowhere);
  }
  ~Silence() {
    std::fflush(stdout);
    dup2(stdout_, STDOUT_FILENO);
    dup2(stderr_, STDERR_FILENO);
    close(stdout_);
    close(stderr_);
  }

 private:
  int stdout_, stderr_;
};

}  // namespace tensorpack::bench
