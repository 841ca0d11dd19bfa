// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack::cuda {

/// Has the linker keep the operators of Note [Side streams] on CUDA.
void link_side_stream();

}  // namespace tensorpack::cuda
