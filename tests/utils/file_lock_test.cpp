// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/file_lock.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <system_error>

#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;

TEST(FileLockTest, TheSecondOneLearnsWhoHasIt) {
  const TempDir dir;
  {
    const FileLock first(dir / "lock");
    EXPECT_EQ(first.other_holder(), std::nullopt);
    const FileLock second(dir / "lock");
    EXPECT_THAT(second.other_holder().value(),
                HasSubstr("process " + std::to_string(::getpid()) + " on "));
  }
  EXPECT_EQ(FileLock(dir / "lock").other_holder(), std::nullopt) << "released by the destructor";
}

TEST(FileLockTest, AFileThatCannotBeOpenedIsAnError) {
  EXPECT_THROW(const FileLock lock("/nonexistent/lock"), std::system_error);
}

}  // namespace
}  // namespace tensorpack
