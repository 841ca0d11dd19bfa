// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/regex.h"

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack {

std::regex compile_regex(std::string_view where, const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    throw make_error(where, "'{}' is not a regular expression: {}. Correct it; '.*' matches all.",
                     pattern, error.what());
  }
}

bool matches_any(const std::string& name, const std::vector<std::regex>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::regex& pattern) { return std::regex_search(name, pattern); });
}

}  // namespace tensorpack
