// SPDX-License-Identifier: Apache-2.0
// The commands of `tp-model`, a program beside `tp` that links libtorch.
#pragma once

#include <string_view>

namespace CLI {
class App;
}

namespace tensorpack {

bool is_model_command(std::string_view name);

/// Becomes `tp-model` with the same arguments; returns an exit status only if that fails.
int run_tp_model(char** argv);

/// Lists the commands in the help.
void add_model_commands(CLI::App& app);

}  // namespace tensorpack
