// SPDX-License-Identifier: Apache-2.0
// The end of main() that the examples have in common.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "tensorpack/train/run_main.h"
#include "tensorpack/utils/flags.h"

namespace tensorpack {

/// All options of the program, those that were not given with their defaults: what a report shows.
inline FlagValues flags_of(const CLI::App& app) {
  FlagValues flags;
  for (const CLI::Option* option : app.get_options()) {
    if (option == app.get_help_ptr()) continue;
    const bool is_switch = option->get_items_expected_max() == 0;
    const std::string given = CLI::detail::join(option->results(), " ");
    const std::string value = is_switch             ? (option->count() > 0 ? "true" : "false")
                              : option->count() > 0 ? given
                                                    : option->get_default_str();
    flags.emplace_back(option->get_name(), value);
  }
  return flags;
}

/// Parses the command line and runs `train`. A wrong command line ends with status 2, a failed
/// training as run_main() says.
inline int run_example(CLI::App& app, int argc, char** argv, const std::function<void()>& train) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  set_command_line_flags(flags_of(app));
  return run_main(train);
}

}  // namespace tensorpack
