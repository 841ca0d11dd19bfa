// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "benchmarks/groups.h"

namespace tensorpack::bench {
namespace {

int run(int argc, char** argv) {
  SuiteOptions options;
  bool list = false;
  CLI::App app(
      "Benchmarks of Tensorpack C++ against its peers; ratios above 1 mean that we are faster.");
  app.add_option("--filter", options.filter, "Run the benchmarks whose name contains this");
  app.add_option("--repetitions", options.repetitions,
                 "Repetitions of each side (default: as each says)")
      ->check(CLI::PositiveNumber);
  app.add_option("--json", options.json_path, "Write the results to this file");
  app.add_flag("--list", list, "List the names and leave");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  Suite suite;
  add_trainer_benchmarks(suite);
  add_callbacks_benchmarks(suite);
  add_utils_benchmarks(suite);
  add_data_benchmarks(suite);
  add_engine_benchmarks(suite);
  add_models_benchmarks(suite);
  add_optim_benchmarks(suite);
  add_parallel_benchmarks(suite);
  add_checkpoint_benchmarks(suite);
  add_predict_benchmarks(suite);
  add_report_benchmarks(suite);

  if (list) {
    for (const auto& name : suite.names()) fmt::print("{}\n", name);
    return 0;
  }
  return suite.run(options);
}

}  // namespace
}  // namespace tensorpack::bench

int main(int argc, char** argv) {
  try {
    return tensorpack::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
