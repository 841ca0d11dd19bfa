// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

using NamedTensors = std::map<std::string, at::Tensor>;

}  // namespace tensorpack
