// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/earlier_files.h"

#include <fmt/format.h>

#include "tensorpack/utils/fs.h"

namespace tensorpack {

namespace fs = std::filesystem;

fs::path free_path(const fs::path& begin, const std::string& end) {
  fs::path path = begin.string() + end;
  for (int i = 1; fs::exists(path); ++i) path = fmt::format("{}-{}{}", begin.string(), i, end);
  return path;
}

fs::path move_away(const fs::path& path) {
  const fs::path free = free_path(fmt::format("{}.{}", path.string(), timestamp()));
  fs::rename(path, free);
  return free.filename();
}

}  // namespace tensorpack
