// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

namespace tensorpack::detail {

/// What is wrong with a file; who knows its name turns this into an Error.
class Malformed : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename... Args>
Malformed malformed(fmt::format_string<Args...> reason, Args&&... args) {
  return Malformed(fmt::format(reason, std::forward<Args>(args)...));
}

template <typename... Args>
void require(bool condition, fmt::format_string<Args...> reason, Args&&... args) {
  if (!condition) throw malformed(reason, std::forward<Args>(args)...);
}

}  // namespace tensorpack::detail
