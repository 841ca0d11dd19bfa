// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/call_scope.h"

namespace tensorpack {

/// The regularization losses this call registered that `cost` was not computed from: somebody
/// forgot to add them.
std::vector<std::string> unused_regularization_losses(const CallScope& call,
                                                      const at::Tensor& cost);

}  // namespace tensorpack
