// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

#include "programs/tp/user_program.h"

namespace tensorpack {

/// Builds and starts a program, and builds it again whenever a file that it is made of was saved.
/// Only when that succeeded is the running program ended, by SIGTERM, and started again. Returns a
/// status when a signal ends the watch: that of the program, which gets the signal, too. SIGUSR1
/// does not end it. A program that has not ended `grace` after a signal is killed. Throws where
/// nothing can be compiled in the beginning, as by an option that the compiler does not know.
int rerun_on_save(const UserProgram& program, const Words& command,
                  std::chrono::milliseconds grace);

}  // namespace tensorpack
