// SPDX-License-Identifier: Apache-2.0
// How `tp` and `tp-model` take the words they are given.
#pragma once

#include <CLI/CLI.hpp>

namespace tensorpack {

/// Runs the command that the words name and returns `status`, which the command sets. Words that
/// are wrong are an error that names the command, with the status 2.
int run_command(CLI::App& app, int argc, char** argv, const int& status);

}  // namespace tensorpack
