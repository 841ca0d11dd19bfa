// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/run_main.h"

#include <fmt/format.h>

#include <cstdio>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/signals.h"

namespace tensorpack {

int run_main(const std::function<void()>& program) {
  try {
    program();
    return 0;
  } catch (const Interrupted& interrupted) {
    return interrupted.exit_status();
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", describe(error));
    return 1;
  } catch (...) {
    fmt::print(stderr, "error: something was thrown that is no std::exception\n");
    return 1;
  }
}

}  // namespace tensorpack
