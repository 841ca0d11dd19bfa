// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/console.h"

#include <gmock/gmock.h>

#include "tests/utils/support.h"

namespace tensorpack {
namespace {

TEST(ConsoleTest, LinesGoAboveTheLiveLine) {
  FakeConsole fake(/*is_terminal=*/true);
  fake.console().set_live_line("bar");
  fake.console().write("line\n");
  EXPECT_EQ(fake.text(), "\r\x1b[Kbar\r\x1b[Kline\nbar");
}

TEST(ConsoleTest, EndedLiveLineStaysWhereItIs) {
  FakeConsole fake(/*is_terminal=*/true);
  fake.console().set_live_line("bar");
  fake.console().end_live_line();
  fake.console().end_live_line();
  fake.console().write("after\n");
  EXPECT_EQ(fake.text(), "\r\x1b[Kbar\nafter\n");
}

TEST(ConsoleTest, WidthOfNoTerminalIsEighty) {
  EXPECT_EQ(FakeConsole(/*is_terminal=*/true).console().width(), 80);
}

}  // namespace
}  // namespace tensorpack
