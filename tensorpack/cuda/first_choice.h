// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include <memory>

#include "tensorpack/graph/operator_watch.h"

namespace tensorpack::cuda {

/// A watch that has libtorch take cuDNN's first choice, untried, for those convolutions on devices
/// of this type that programs choose themselves. See Note [Choosing convolutions].
std::shared_ptr<OperatorWatch> first_choice_of_convolutions(c10::DeviceType device = c10::kCUDA);

}  // namespace tensorpack::cuda
