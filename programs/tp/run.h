// SPDX-License-Identifier: Apache-2.0
// `tp run`: compiles a program that uses the library, and runs it.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tensorpack {

/// Adds the subcommand; `status` gets the exit status. `program_words` are what stood behind `--`.
void add_run(CLI::App& app, std::vector<std::string> program_words, int& status);

}  // namespace tensorpack
