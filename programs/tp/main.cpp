// SPDX-License-Identifier: Apache-2.0
// `tp`: the tools that come with the library. Links no libtorch, so that it starts at once.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "programs/tp/launch.h"
#include "programs/tp/watch.h"

int main(int argc, char** argv) {
  CLI::App app("Tools for programs that train with Tensorpack.", "tp");
  app.require_subcommand(1);
  int status = 0;
  tensorpack::add_launch(app, status);
  tensorpack::add_watch(app, status);
  CLI11_PARSE(app, argc, argv);
  return status;
}
