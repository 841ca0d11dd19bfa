// SPDX-License-Identifier: Apache-2.0
// `tp new`: a directory with a project to begin with.
#pragma once

namespace CLI {
class App;
}

namespace tensorpack {

/// Adds the subcommand; `status` gets the exit status.
void add_new_project(CLI::App& app, int& status);

}  // namespace tensorpack
