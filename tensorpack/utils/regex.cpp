// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/regex.h"

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

}  // namespace tensorpack
