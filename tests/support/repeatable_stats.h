// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/fs.h"

namespace tensorpack {

/// What stats.json of a log directory has, without what is measured by the clock and so differs
/// from run to run.
inline nlohmann::json repeatable_stats(const std::filesystem::path& dir) {
  nlohmann::json stats = nlohmann::json::parse(read_file(dir / "stats.json"));
  for (nlohmann::json& row : stats) row.erase("QueueInput/queue_size");
  return stats;
}

}  // namespace tensorpack
