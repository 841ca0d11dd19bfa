// SPDX-License-Identifier: Apache-2.0
// Updates of all variables in a few kernels: the CUDA side of optim/kernels.h.
#pragma once

namespace tensorpack::cuda {

/// Called so that the linker keeps the kernels, which register themselves.
void link_update_kernels();

}  // namespace tensorpack::cuda
