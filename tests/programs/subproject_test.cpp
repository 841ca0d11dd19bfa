// SPDX-License-Identifier: Apache-2.0
// The library as a part of somebody's project, built from a checkout.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

TEST(SubprojectTest, ACheckoutIsBuiltWithTheProjectThatFetchesIt) {
  const TempDir dir;
  const std::string script = "set -e; cd '" + dir.path().string() +
                             "'; '" TENSORPACK_TP
                             "' new digits; cd digits; cmake --preset release "
                             "-DTENSORPACK_SOURCE='" TENSORPACK_SOURCE_DIR
                             "'; cmake --build --preset release -j 2; ctest --preset release";
  ChildProcess child({"/bin/sh", "-c", script});
  EXPECT_EQ(child.wait(), 0) << child.output();
  const std::filesystem::path build = dir / "digits/build/release";
  EXPECT_TRUE(std::filesystem::exists(build / "train"));
  EXPECT_FALSE(std::filesystem::exists(build / "_deps/tensorpack-build/programs"));
}

}  // namespace
}  // namespace tensorpack
