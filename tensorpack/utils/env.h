// SPDX-License-Identifier: Apache-2.0
// Environment variables: reading them as what they should be, and changing them for a while.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tensorpack {

/// The value of an environment variable; nothing when it is unset or empty.
std::optional<std::string> env(const char* name);

/// An environment variable that must hold an integer; throws Error when it holds something else.
std::optional<std::int64_t> env_int(const char* name);

/// An environment variable that must hold a finite number; throws Error when it holds something
/// else.
std::optional<double> env_double(const char* name);

/// The words this process was started with, the program first.
std::vector<std::string> command_line();

/// Sets an environment variable, or unsets it with nullopt, until the end of the scope.
///
/// The environment belongs to the process: no other thread may read it meanwhile.
class [[nodiscard]] ScopedEnv {
 public:
  ScopedEnv(std::string name, const std::optional<std::string>& value);
  ~ScopedEnv();
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

 private:
  std::string name_;
  std::optional<std::string> before_;
};

}  // namespace tensorpack
