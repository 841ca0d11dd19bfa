// SPDX-License-Identifier: Apache-2.0
// What a training process sets once, before its first operator.
#pragma once

#include <filesystem>
#include <string>

namespace tensorpack {

/// Sets the process up for training; calls after the first do nothing.
///
/// - As many threads per operator as this process may use cores, divided by the ranks on this
///   machine, unless OMP_NUM_THREADS is set.
/// - Freed memory stays in the process: giving it back costs more page faults than small models
///   cost arithmetic.
/// - A warning when the BLAS is a slow one.
void tune_process();

namespace detail {

/// What to tell about a BLAS library, given its real path; empty when there is nothing to tell.
std::string blas_advice(const std::filesystem::path& library);

}  // namespace detail

}  // namespace tensorpack
