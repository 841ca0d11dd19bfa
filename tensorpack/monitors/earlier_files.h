// SPDX-License-Identifier: Apache-2.0
// What a monitor does with files that a training left before.
#pragma once

#include <filesystem>
#include <string>

namespace tensorpack {

/// A path that nothing has: `<begin><end>`, or `<begin>-1<end>` and so on.
std::filesystem::path free_path(const std::filesystem::path& begin, const std::string& end = "");

/// Keeps a file that is in the way as `<path>.<MMDD-HHMMSS>` and returns the new name.
std::filesystem::path move_away(const std::filesystem::path& path);

}  // namespace tensorpack
