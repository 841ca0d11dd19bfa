// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/flags.h"

#include <gmock/gmock.h>

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(FlagsTest, AreReadFromTheCommandLine) {
  EXPECT_THAT(
      parse_flags({"train", "data", "--lr", "0.1", "--resume", "--batch=64", "-n", "-1", "more"}),
      ElementsAre(Pair("--lr", "0.1"), Pair("--resume", ""), Pair("--batch", "64"),
                  Pair("-n", "-1"), Pair("arguments", "data more")));
}

TEST(FlagsTest, AProgramThatKnowsMoreSaysSo) {
  const FlagValues before = command_line_flags();
  set_command_line_flags({{"--lr", "0.1"}, {"--epochs", "5"}});
  EXPECT_THAT(command_line_flags(), ElementsAre(Pair("--lr", "0.1"), Pair("--epochs", "5")));
  set_command_line_flags(before);
}

TEST(FlagsTest, HaveNamesWithoutDashes) {
  EXPECT_EQ(name_of_flag("--lr"), "lr");
  EXPECT_EQ(name_of_flag("-n"), "n");
  EXPECT_EQ(name_of_flag("arguments"), "arguments");
  EXPECT_EQ(name_of_flag("--"), "");
}

}  // namespace
}  // namespace tensorpack
