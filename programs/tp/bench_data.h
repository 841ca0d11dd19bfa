// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace CLI {
class App;
}

namespace tensorpack {

/// Adds the subcommand; `status` gets the exit status.
void add_bench_data(CLI::App& app, int& status);

}  // namespace tensorpack
