// SPDX-License-Identifier: Apache-2.0
// `tp`: the tools that come with the library. Links no libtorch, so that it starts at once.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "programs/tp/command_line.h"
#include "programs/tp/completion.h"
#include "programs/tp/launch.h"
#include "programs/tp/model_commands.h"
#include "programs/tp/new_project.h"
#include "programs/tp/run.h"
#include "programs/tp/watch.h"

int main(int argc, char** argv) {
  if (argc > 1 && tensorpack::is_model_command(argv[1])) return tensorpack::run_tp_model(argv);
  // Behind `--`, `tp run` has the words of the program that it runs.
  const bool runs = argc > 1 && std::string_view(argv[1]) == "run";
  char** const dashes = runs ? std::find(argv, argv + argc, std::string_view("--")) : argv + argc;
  const std::vector<std::string> program_words(std::min(dashes + 1, argv + argc), argv + argc);
  argc = static_cast<int>(dashes - argv);
  CLI::App app("Tools for programs that train with Tensorpack.", "tp");
  app.require_subcommand(1);
  int status = 0;
  tensorpack::add_new_project(app, status);
  tensorpack::add_run(app, program_words, status);
  tensorpack::add_launch(app, status);
  tensorpack::add_model_commands(app);
  tensorpack::add_completion(app, status);
  tensorpack::add_watch(app, status);
  return tensorpack::run_command(app, argc, argv, status);
}
