// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack::cuda {

/// Has the linker keep the operators of Note [A side stream] on CUDA.
void link_side_stream();

}  // namespace tensorpack::cuda
