// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace tensorpack {

/// What a run was started with, as texts: {"batch", "64"}.
using HyperParams = std::map<std::string, std::string>;

}  // namespace tensorpack
