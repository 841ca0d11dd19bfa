// SPDX-License-Identifier: Apache-2.0
// `tp export`: shows exported models and writes them as ONNX.
#pragma once

namespace CLI {
class App;
}

namespace tensorpack {

/// Adds the subcommand; `status` gets the exit status.
void add_export(CLI::App& app, int& status);

}  // namespace tensorpack
