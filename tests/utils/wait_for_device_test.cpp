// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/wait_for_device.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using std::chrono::milliseconds;

const auto kNever = [] { return false; };

TEST(WaitForDeviceTest, EndsWhenItIsDone) {
  int looks = 0;
  wait_until([&] { return ++looks == 3; });
  EXPECT_EQ(looks, 3);
}

// A device that waits for a rank that does not come.
TEST(WaitForDeviceTest, ACheckEndsAWaitThatWouldNeverEnd) {
  milliseconds last{0};
  int checks = 0;
  const WaitCheck check([&](milliseconds waited) {
    EXPECT_GT(waited, last);
    last = waited;
    if (++checks == 2) throw make_error("rank 0 of 2", "rank 1 is gone.");
  });
  EXPECT_ERROR(wait_until(kNever), "rank 1 is gone");
  EXPECT_EQ(checks, 2);
}

TEST(WaitForDeviceTest, OtherThreadsDoNotCallIt) {
  const WaitCheck check([](milliseconds) { throw std::runtime_error("of another thread"); });
  std::thread([] {
    const WaitCheck own([](milliseconds) { throw make_error("own", "the check of this thread."); });
    EXPECT_ERROR(wait_until(kNever), "the check of this thread");
  }).join();
}

TEST(WaitForDeviceTest, ACheckEndsWithItsObject) {
  {
    const WaitCheck gone([](milliseconds) { throw std::runtime_error("gone"); });
  }
  const auto begun = std::chrono::steady_clock::now();
  wait_until([&] { return std::chrono::steady_clock::now() - begun > milliseconds(250); });
}

}  // namespace
}  // namespace tensorpack
