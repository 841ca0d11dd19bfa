// SPDX-License-Identifier: Apache-2.0
// `tp`: the tools that come with the library. Links no libtorch, so that it starts at once.
#include <CLI/CLI.hpp>

#include "programs/tp/command_line.h"
#include "programs/tp/completion.h"
#include "programs/tp/launch.h"
#include "programs/tp/model_commands.h"
#include "programs/tp/watch.h"

int main(int argc, char** argv) {
  if (argc > 1 && tensorpack::is_model_command(argv[1])) return tensorpack::run_tp_model(argv);
  CLI::App app("Tools for programs that train with Tensorpack.", "tp");
  app.require_subcommand(1);
  int status = 0;
  tensorpack::add_launch(app, status);
  tensorpack::add_model_commands(app);
  tensorpack::add_completion(app, status);
  tensorpack::add_watch(app, status);
  return tensorpack::run_command(app, argc, argv, status);
}
