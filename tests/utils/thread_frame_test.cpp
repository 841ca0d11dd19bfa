// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/detail/thread_frame.h"

#include <gmock/gmock.h>

#include <string>
#include <thread>

namespace tensorpack {
namespace {

struct Depth {
  int value = 0;
};

TEST(ThreadFrameTest, HasOneValueOfEachType) {
  const FreshFrame frame;
  ThreadFrame::current().get<Depth>().value = 3;
  ThreadFrame::current().get<std::string>() = "path";
  EXPECT_EQ(ThreadFrame::current().get<Depth>().value, 3);
  EXPECT_EQ(ThreadFrame::current().get<std::string>(), "path");
}

TEST(ThreadFrameTest, AFreshFrameIsEmptyAndTheOldOneComesBack) {
  const FreshFrame outer;
  ThreadFrame::current().get<Depth>().value = 3;
  {
    const FreshFrame inner;
    EXPECT_EQ(ThreadFrame::current().get<Depth>().value, 0);
    ThreadFrame::current().get<Depth>().value = 7;
  }
  EXPECT_EQ(ThreadFrame::current().get<Depth>().value, 3);
}

TEST(ThreadFrameTest, EveryThreadHasItsOwn) {
  const FreshFrame frame;
  ThreadFrame::current().get<Depth>().value = 3;
  int seen = -1;
  std::thread([&] { seen = ThreadFrame::current().get<Depth>().value; }).join();
  EXPECT_EQ(seen, 0);
}

}  // namespace
}  // namespace tensorpack
