// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>

#include "programs/tp/rerun_on_save.h"
#include "programs/tp/user_program.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr int kCompilerFailed = 1;

struct RunOptions {
  BuildOptions build = {};
  bool watch = false;
  double grace = 30;  // as of `tp launch`
  bool print_commands = false;
};

/// Becomes the program: it has the terminal, the signals and the status for itself.
[[noreturn]] void become_program(const Words& words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  throw make_error(kTpRun, "'{}' cannot be started: {}.", words[0], std::strerror(errno));
}

int run(const RunOptions& options, const Words& program_words) {
  const UserProgram program(options.build);
  if (options.print_commands) {
    for (const std::string& command : program.commands(program_words)) fmt::print("{}\n", command);
    return 0;
  }
  Words words = {program.path().string()};
  words.insert(words.end(), program_words.begin(), program_words.end());
  if (options.build.debug) fmt::print(stderr, "tp run: for a debugger: {}\n", words[0]);
  if (options.watch) {
    return rerun_on_save(program, words,
                         std::chrono::milliseconds(static_cast<int64_t>(1000 * options.grace)));
  }
  if (!program.build()) return kCompilerFailed;
  become_program(words);
}

}  // namespace

void add_run(CLI::App& app, std::vector<std::string> program_words, int& status) {
  const auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand(
      "run", "Compile a program that uses the library, and run it: tp run train.cpp -- --epochs 3");
  command->add_option("sources", options->build.sources, "The files that it is made of")
      ->required();
  command->add_flag("--watch", options->watch,
                    "Compile on every save, and start the program again when that succeeds");
  command
      ->add_option("--grace", options->grace,
                   "Seconds that a program has to end with --watch before it is killed")
      ->check(CLI::NonNegativeNumber);
  CLI::Option* release =
      command->add_flag("--release", options->build.release, "Optimize more: -O3 instead of -O1");
  command->add_flag("-g,--debug", options->build.debug, "Do not optimize, for a debugger: -O0 -g")
      ->excludes(release);
  command
      ->add_option("--cxx", options->build.cxx_options,
                   "An option for the compiler and linker, any number of times: --cxx=-Iinclude")
      ->allow_extra_args(false);
  command->add_flag("--flags", options->print_commands, "Print what would be run, and run nothing");
  command->footer(
      "Arguments of the program stand behind --. Compiled files are kept in\n"
      "$XDG_CACHE_HOME/tensorpack/run (~/.cache/tensorpack/run); CXX names another compiler.\n"
      "Examples:\n"
      "  tp run train.cpp -- --epochs 3\n"
      "  tp run --watch train.cpp model.cpp");
  command->callback([options, program_words = std::move(program_words), &status] {
    try {
      status = run(*options, program_words);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
      status = 2;
    }
  });
}

}  // namespace tensorpack
