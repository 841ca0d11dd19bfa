// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/command_line.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tensorpack {
namespace {

constexpr int kWrongUsage = 2;

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string failure(const CLI::App* app, const CLI::Error& error) {
  const auto commands = app->get_subcommands();
  const std::string name = commands.empty() ? "tp" : "tp " + commands.front()->get_name();
  return fmt::format("{0}: {1}. See {0} --help.\n", name, error.what());
}

}  // namespace

int run_command(CLI::App& app, int argc, char** argv, const int& status) {
  if (argc < 2) {
    fmt::print(stderr, "{}", app.help());
    return kWrongUsage;
  }
  const std::string first = argv[1];
  const std::vector<std::string> names = command_names(app);
  if (!first.starts_with("-") && std::find(names.begin(), names.end(), first) == names.end()) {
    fmt::print(stderr, "tp: there is no command '{}'. The commands are {}. See tp --help.\n", first,
               fmt::join(names, ", "));
    return kWrongUsage;
  }
  app.failure_message(failure);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;  // 0: it was asked for help
  }
  return status;
}

}  // namespace tensorpack
