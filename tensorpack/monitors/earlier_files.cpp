// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/earlier_files.h"

#include <fmt/format.h>

#include "tensorpack/utils/fs.h"

namespace tensorpack {

namespace fs = std::filesystem;

fs::path move_away(const fs::path& path) {
  const std::string name = fmt::format("{}.{}", path.string(), timestamp());
  fs::path free = name;
  for (int i = 1; fs::exists(free); ++i) free = fmt::format("{}-{}", name, i);
  fs::rename(path, free);
  return free.filename();
}

}  // namespace tensorpack
