// SPDX-License-Identifier: Apache-2.0
// Settings of the process that make training and prediction faster.
#pragma once

#include <filesystem>
#include <string>

namespace tensorpack {

/// Tunes this process for libtorch's operators; calls after the first do nothing. A Trainer calls
/// it. Nothing else in the library does: a predictor in a server changes no setting of the process,
/// and a server that wants these calls this function once, at the start of main().
///
/// - Each operator uses as many threads as the process may use cores, divided by the ranks on this
///   machine, unless OMP_NUM_THREADS is set.
/// - libtorch allocates CPU tensors from a cache of freed blocks, unless
///   TENSORPACK_CPU_ALLOCATOR=default is set.
/// - malloc keeps freed memory in the process: returning it to the kernel costs more page faults
///   than small models cost arithmetic.
/// - The log warns of a slow BLAS.
void tune_process();

namespace detail {

/// What to tell about a BLAS library, given its real path; empty when there is nothing to tell.
std::string blas_advice(const std::filesystem::path& library);

}  // namespace detail

}  // namespace tensorpack
