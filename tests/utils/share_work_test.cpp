// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/share_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace tensorpack {
namespace {

TEST(ShareWorkTest, DoesEachPieceOnce) {
  std::vector<std::atomic<int>> done(1000);
  share_work(done.size(), [&](size_t i) { ++done[i]; });
  for (const auto& times : done) EXPECT_EQ(times, 1);
  share_work(0, [](size_t) { FAIL(); });
}

TEST(ShareWorkTest, ThrowsWhatAPieceThrows) {
  const auto fail_at_ten = [](size_t i) {
    if (i == 10) throw std::out_of_range("ten");
  };
  EXPECT_THROW(share_work(100, fail_at_ten), std::out_of_range);
}

}  // namespace
}  // namespace tensorpack
