// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/run_main.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"

namespace tensorpack {
namespace {

// As on a terminal, and with `2>&1`.
bool streams_are_one() {
  struct stat output = {}, errors = {};
  return fstat(STDOUT_FILENO, &output) == 0 && fstat(STDERR_FILENO, &errors) == 0 &&
         output.st_dev == errors.st_dev && output.st_ino == errors.st_ino;
}

// A training that fails has the log say so: who reads both in one place need not read it twice.
void tell(const std::string& text) {
  if (streams_are_one() && logging::last_error().find(text) != std::string::npos) return;
  fmt::print(stderr, "error: {}\n", text);
}

}  // namespace

int run_main(const std::function<void()>& program) {
  tolerate_signals_outside_of_training();
  try {
    program();
    return 0;
  } catch (const Interrupted& interrupted) {
    return interrupted.exit_status();
  } catch (const std::exception& error) {
    tell(describe(error));
    return 1;
  } catch (...) {
    tell("something was thrown that is no std::exception");
    return 1;
  }
}

}  // namespace tensorpack
