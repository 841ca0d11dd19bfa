// SPDX-License-Identifier: Apache-2.0
// `tp completion`: what makes a shell complete the words of `tp`.
#pragma once

namespace CLI {
class App;
}

namespace tensorpack {

/// Adds the subcommand, after all others; `status` gets the exit status.
void add_completion(CLI::App& app, int& status);

}  // namespace tensorpack
