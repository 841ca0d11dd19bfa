// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <system_error>

#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

TEST(InputFileTest, ReadsAnyPartAndNothingBeyondTheEnd) {
  const TempDir dir;
  write_file_atomically(dir / "file", "0123456789");
  const InputFile file(dir / "file");
  EXPECT_EQ(file.size(), 10);
  std::string bytes(3, ' ');
  EXPECT_TRUE(file.read(7, bytes.data(), 3));
  EXPECT_EQ(bytes, "789");
  EXPECT_TRUE(file.read(0, bytes.data(), 3));
  EXPECT_EQ(bytes, "012");
  EXPECT_FALSE(file.read(8, bytes.data(), 3));
}

// A pipe that nobody writes to must not be waited for.
TEST(InputFileTest, OnlyRegularFilesCanBeOpened) {
  const TempDir dir;
  ASSERT_EQ(mkfifo((dir / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(InputFile(dir / "pipe"), std::system_error);
  EXPECT_THROW(InputFile(dir / "missing"), std::system_error);
  EXPECT_THROW(InputFile{dir.path()}, std::system_error);
}

}  // namespace
}  // namespace tensorpack
