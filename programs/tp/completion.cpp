// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/completion.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace tensorpack {
namespace {

// Options are asked of the command's own help, so that there is no second list of them.
constexpr const char* kBash = R"(_tp() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{}' -- "$word")
  elif [[ $word == -* ]]; then
    local options
    options=$("${{COMP_WORDS[0]}}" "${{COMP_WORDS[1]}}" --help 2>/dev/null |
      sed -nE 's/^  (-.,)?(--[a-z0-9-]+).*/\2/p')
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}}
complete -o filenames -F _tp tp
)";

std::string commands_of(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names += (names.empty() ? "" : " ") + command->get_name();
  }
  return names;
}

}  // namespace

void add_completion(CLI::App& app, int& status) {
  CLI::App* command = app.add_subcommand(
      "completion", "Print what bash needs to complete words: source <(tp completion)");
  command->footer("Example:\n  echo 'source <(tp completion)' >> ~/.bashrc");
  command->callback([&app, &status] {
    fmt::print(fmt::runtime(kBash), commands_of(app));
    status = 0;
  });
}

}  // namespace tensorpack
