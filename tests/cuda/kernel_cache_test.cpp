// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernel_cache.h"

#include <gmock/gmock.h>

#include "tensorpack/cuda/jit.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack::cuda {
namespace {

using testing::Optional;

const std::string kBinary(
    "\x7f"
    "ELF\0bits",
    9);

std::filesystem::path only_file(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry);
  EXPECT_EQ(files.size(), 1U);
  return files.at(0);
}

TEST(KernelCacheTest, FindsWhatWasStoredUnderTheSameKeyAlone) {
  const TempDir folder;
  const KernelCache cache(folder / "kernels");
  EXPECT_EQ(cache.find("key"), std::nullopt);
  cache.store("key", kBinary);
  EXPECT_THAT(cache.find("key"), Optional(kBinary));
  EXPECT_EQ(cache.find("other"), std::nullopt);
  EXPECT_THAT(KernelCache(folder / "kernels").find("key"), Optional(kBinary));
}

TEST(KernelCacheTest, DamagedEntriesAreIgnored) {
  const TempDir folder;
  const KernelCache cache(folder.path());
  cache.store("key", kBinary);
  const auto file = only_file(folder.path());
  const std::string good = read_file(file);
  for (size_t cut = 0; cut < good.size(); ++cut) {
    write_file_atomically(file, good.substr(0, cut));
    EXPECT_EQ(cache.find("key"), std::nullopt) << cut;
    std::string flipped = good;
    flipped[cut] = static_cast<char>(flipped[cut] ^ 1);
    write_file_atomically(file, flipped);
    EXPECT_EQ(cache.find("key"), std::nullopt) << cut;
  }
  cache.store("key", kBinary);
  EXPECT_THAT(cache.find("key"), Optional(kBinary));
}

TEST(KernelCacheTest, AFolderThatCannotBeMadeIsNoError) {
  const TempDir folder;
  write_file_atomically(folder / "file", "");
  const KernelCache cache(folder / "file" / "kernels");
  cache.store("key", kBinary);
  EXPECT_EQ(cache.find("key"), std::nullopt);
}

TEST(KernelCacheTest, LiesInTheUsersCache) {
  const ScopedEnv cache("XDG_CACHE_HOME", "/somewhere");
  EXPECT_EQ(default_kernel_cache(), "/somewhere/tensorpack/kernels");
  const ScopedEnv none("XDG_CACHE_HOME", std::nullopt);
  const ScopedEnv home("HOME", "/home/one");
  EXPECT_EQ(default_kernel_cache(), "/home/one/.cache/tensorpack/kernels");
}

TEST(JitTest, WhatIsMissingIsNamed) {
  const auto& obstacle = obstacle_to_compiling();
  if (!obstacle) GTEST_SKIP() << "NVRTC and a driver are here";
  EXPECT_THAT(*obstacle, testing::HasSubstr("was not found"));
  EXPECT_THROW(prepare({"nothing", ""}), Error);
}

}  // namespace
}  // namespace tensorpack::cuda
