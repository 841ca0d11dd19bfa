// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

namespace tensorpack {

/// States as texts, each by a key of its owner's choice: of callbacks, of random number generators
/// and of whatever else a checkpoint has beside variables.
using StateTexts = std::map<std::string, std::string>;

}  // namespace tensorpack
