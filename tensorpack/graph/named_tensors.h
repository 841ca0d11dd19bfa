// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace tensorpack {

using NamedTensors = std::map<std::string, at::Tensor>;

}  // namespace tensorpack
