// SPDX-License-Identifier: Apache-2.0
// The exceptions of the library and the two macros that throw them.
//
//   TP_CHECK(size > 0, "batch", "the batch size must be positive, got {}. Pass 1 or more.", size);
//
// throws Error("[batch] the batch size must be positive, got 0. Pass 1 or more.").
#pragma once

#include <fmt/core.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tensorpack {

/// Something the user can fix. The text reads `[where] what is wrong, with the values. How to fix.`
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A broken promise of the library itself.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Thrown by anything inside the training loop to end training normally.
class StopTraining : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The input source has nothing more to give; ends training normally.
class EndOfData : public StopTraining {
 public:
  using StopTraining::StopTraining;
};

/// Builds the message of an Error: `[where] text`.
template <typename... Args>
Error make_error(std::string_view where, fmt::format_string<Args...> text, Args&&... args) {
  return Error(fmt::format("[{}] {}", where, fmt::format(text, std::forward<Args>(args)...)));
}

/// The text of an exception without libtorch's stack trace.
std::string describe(const std::exception& error);

namespace detail {
[[noreturn]] void throw_internal_error(const char* file, int line, const char* condition);
}

}  // namespace tensorpack

/// Throws Error unless `condition` holds: `TP_CHECK(condition, where, format, args...)`.
#define TP_CHECK(condition, where, ...)                     \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      throw ::tensorpack::make_error((where), __VA_ARGS__); \
  } while (false)

/// Throws InternalError unless `condition`, which only a bug of the library can break, holds.
#define TP_ASSERT(condition)                                                      \
  do {                                                                            \
    if (!(condition)) [[unlikely]]                                                \
      ::tensorpack::detail::throw_internal_error(__FILE__, __LINE__, #condition); \
  } while (false)
