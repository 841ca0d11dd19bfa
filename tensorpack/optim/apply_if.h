// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/optim/optimizer.h"

namespace tensorpack::detail {

/// optimizer.apply_gradients(gradients), whose effects on variables stay only where `condition`, a
/// 0-d boolean tensor, holds: computed in any case, so that one recorded program serves both.
/// In the first call on a graph, the optimizer may create variables.
void apply_gradients_if(const at::Tensor& condition, Optimizer& optimizer,
                        const Gradients& gradients, bool is_first_call);

}  // namespace tensorpack::detail
