// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/share_work.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <vector>

namespace tensorpack {
namespace {

TEST(ShareWorkTest, DoesEachPieceOnce) {
  for (const size_t threads : {0, 1, 2, 64}) {
    std::vector<std::atomic<int>> done(1000);
    share_work(done.size(), threads, [&](size_t i) { ++done[i]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
  share_work(0, 2, [](size_t) { FAIL(); });
}

// Each of two pieces waits for the other.
TEST(ShareWorkTest, PiecesAreDoneAtTheSameTime) {
  const int before = at::get_num_threads();
  at::set_num_threads(2);
  std::latch both(2);
  share_work(2, 2, [&](size_t) { both.arrive_and_wait(); });
  at::set_num_threads(before);
}

TEST(ShareWorkTest, ThrowsWhatAPieceThrows) {
  const auto fail_at_ten = [](size_t i) {
    if (i == 10) throw std::out_of_range("ten");
  };
  EXPECT_THROW(share_work(100, 2, fail_at_ten), std::out_of_range);
}

}  // namespace
}  // namespace tensorpack
