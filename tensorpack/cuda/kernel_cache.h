// SPDX-License-Identifier: Apache-2.0
// Compiled kernels on disk. Several processes may use one folder.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tensorpack::cuda {

/// $XDG_CACHE_HOME/tensorpack/kernels, or ~/.cache/tensorpack/kernels; empty if there is no home.
std::filesystem::path default_kernel_cache();

class KernelCache {
 public:
  /// With an empty path nothing is kept.
  explicit KernelCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// What was stored for the key; nothing if there is none, or it is damaged.
  std::optional<std::string> find(std::string_view key) const;
  /// Keeps `binary` for the key. A folder that cannot be written is no error: the log says so once.
  void store(std::string_view key, std::string_view binary) const;

 private:
  std::filesystem::path file_of(std::string_view key) const;

  std::filesystem::path folder_;
};

}  // namespace tensorpack::cuda
