// SPDX-License-Identifier: Apache-2.0
// The end of main() that the examples have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tensorpack/train/run_main.h"

namespace tensorpack {

/// Parses the command line and runs `train`. A wrong command line ends with status 2, a failed
/// training as run_main() says.
inline int run_example(CLI::App& app, int argc, char** argv, const std::function<void()>& train) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return run_main(train);
}

}  // namespace tensorpack
