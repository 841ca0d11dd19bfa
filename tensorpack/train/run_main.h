// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace tensorpack {

/// The body of main(): runs `program` and turns what it throws into a message and an exit status: 1
/// for errors, 130 after Ctrl-C, 143 after SIGTERM. No stack trace. The message goes to the
/// standard error output, unless the log has just shown it on the same terminal. SIGUSR1, which
/// has a training save, and SIGXFSZ end nothing between trainings either.
///
///   int main(int argc, char** argv) {
///     return tensorpack::run_main([&] { train(parse(argc, argv)); });
///   }
int run_main(const std::function<void()>& program);

}  // namespace tensorpack
