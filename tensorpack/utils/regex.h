// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regex>
#include <string>
#include <string_view>
#include <vector>

namespace tensorpack {

/// A regular expression; throws an Error, said to come from `where`, when it is none.
std::regex compile_regex(std::string_view where, const std::string& pattern);

/// True if one of the patterns is found in `name`.
bool matches_any(const std::string& name, const std::vector<std::regex>& patterns);

}  // namespace tensorpack
