// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernel_cache.h"

#include <fmt/format.h>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/hash.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::cuda {
namespace {

// In front of the binary: what it is of, so that equal hashes do no harm, and a check of the rest.
std::string header_of(std::string_view key, std::string_view binary) {
  return fmt::format("tensorpack kernel 2\n{} {} {:016x}\n", key.size(), binary.size(),
                     xxh64(binary, xxh64(key)));
}

}  // namespace

std::filesystem::path default_kernel_cache() { return cache_path("kernels"); }

std::filesystem::path KernelCache::file_of(std::string_view key) const {
  return folder_ / fmt::format("{:016x}{:016x}.bin", xxh64(key), xxh64(key, key.size()));
}

std::optional<std::string> KernelCache::find(std::string_view key) const {
  std::error_code ignored;
  if (folder_.empty() || !std::filesystem::is_regular_file(file_of(key), ignored)) {
    return std::nullopt;
  }
  try {
    const std::string file = read_file(file_of(key));
    const size_t lines_end = file.find('\n', file.find('\n') + 1);
    if (lines_end == std::string::npos || file.size() < lines_end + 1 + key.size()) {
      return std::nullopt;
    }
    const std::string binary = file.substr(lines_end + 1 + key.size());
    if (file != header_of(key, binary) + std::string(key) + binary) return std::nullopt;
    return binary;
  } catch (const Error& error) {
    logging::debug("A compiled kernel cannot be read: {}", error.what());
    return std::nullopt;
  }
}

void KernelCache::store(std::string_view key, std::string_view binary) const {
  if (folder_.empty()) return;
  try {
    std::filesystem::create_directories(folder_);
    write_file_atomically(file_of(key),
                          header_of(key, binary) + std::string(key) + std::string(binary));
  } catch (const std::exception& error) {
    logging::warning_once("Compiled kernels cannot be kept for the next start: {}", error.what());
  }
}

}  // namespace tensorpack::cuda
