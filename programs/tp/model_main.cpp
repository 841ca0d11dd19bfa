// SPDX-License-Identifier: Apache-2.0
// `tp-model`: the commands of `tp` that look into files of tensors.
#include <CLI/CLI.hpp>

#include "programs/tp/export.h"

int main(int argc, char** argv) {
  CLI::App app("Tools for files of tensors.", "tp");
  app.require_subcommand(1);
  int status = 0;
  tensorpack::add_export(app, status);
  CLI11_PARSE(app, argc, argv);
  return status;
}
