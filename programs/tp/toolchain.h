// SPDX-License-Identifier: Apache-2.0
// The compiler, and the options with which a program that uses the library is compiled and linked.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace tensorpack {

using Words = std::vector<std::string>;

/// Where its errors come from.
inline constexpr const char* kTpRun = "tp run";

struct Toolchain {
  std::string compiler = {};
  std::string version = {};  ///< what the compiler says of itself
  bool is_clang = false;
  Words compile_options = {};
  Words link_options = {};  ///< behind the objects, with the library itself
};

/// Reads what configuring the library wrote, beside `tp` in a build tree or below the prefix of an
/// install. The compiler is $CXX, or the one that built the library, or else clang++ or g++.
/// Throws Error when the library or every compiler is missing.
Toolchain find_toolchain();

}  // namespace tensorpack
