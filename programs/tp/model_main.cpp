// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/model_main.h"

#include <CLI/CLI.hpp>

#include "programs/tp/average.h"
#include "programs/tp/bench_data.h"
#include "programs/tp/cifar10.h"
#include "programs/tp/command_line.h"
#include "programs/tp/convert.h"
#include "programs/tp/diff.h"
#include "programs/tp/export.h"
#include "programs/tp/ls.h"
#include "programs/tp/show.h"

int tensorpack::model_main(int argc, char** argv) {
  CLI::App app("Tools for files of tensors.", "tp");
  app.require_subcommand(1);
  int status = 0;
  tensorpack::add_ls(app, status);
  tensorpack::add_show(app, status);
  tensorpack::add_diff(app, status);
  tensorpack::add_average(app, status);
  tensorpack::add_convert(app, status);
  tensorpack::add_export(app, status);
  tensorpack::add_bench_data(app, status);
  tensorpack::add_cifar10(app, status);
  return run_command(app, argc, argv, status);
}
