// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// The names of the floating-point tensors that have a NaN or an infinity. Reads each once; a
/// tensor on a device is waited for.
std::vector<std::string> find_non_finite(const NamedTensors& tensors);

}  // namespace tensorpack
