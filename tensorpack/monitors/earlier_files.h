// SPDX-License-Identifier: Apache-2.0
// What a monitor does with files that a training left before.
#pragma once

#include <filesystem>

namespace tensorpack {

/// Keeps a file that is in the way as `<path>.<MMDD-HHMMSS>` and returns the new name.
std::filesystem::path move_away(const std::filesystem::path& path);

}  // namespace tensorpack
