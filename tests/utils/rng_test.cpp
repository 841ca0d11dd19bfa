// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/rng.h"

#include <gmock/gmock.h>

#include <set>

namespace tensorpack {
namespace {

TEST(RngTest, BetweenReachesBothEnds) {
  Rng rng(1, 0);
  std::set<int64_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(rng.between(-2, 1));
  EXPECT_THAT(seen, testing::ElementsAre(-2, -1, 0, 1));
  EXPECT_EQ(rng.between(5, 5), 5);
}

TEST(RngTest, UniformFillsTheInterval) {
  Rng rng(2, 0);
  double low = 1;
  double high = 0;
  double sum = 0;
  constexpr int kDraws = 20'000;
  for (int i = 0; i < kDraws; ++i) {
    const double drawn = rng.uniform();
    low = std::min(low, drawn);
    high = std::max(high, drawn);
    sum += drawn;
  }
  EXPECT_GE(low, 0);
  EXPECT_LT(low, 0.01);
  EXPECT_LT(high, 1);
  EXPECT_GT(high, 0.99);
  EXPECT_NEAR(sum / kDraws, 0.5, 0.01);
}

TEST(RngTest, NormalHasMeanZeroAndVarianceOne) {
  Rng rng(3, 0);
  double sum = 0;
  double squares = 0;
  double fourth_powers = 0;
  constexpr int kDraws = 50'000;
  for (int i = 0; i < kDraws; ++i) {
    const double drawn = rng.normal();
    sum += drawn;
    squares += drawn * drawn;
    fourth_powers += drawn * drawn * drawn * drawn;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.03);
  EXPECT_NEAR(squares / kDraws, 1, 0.03);
  EXPECT_NEAR(fourth_powers / kDraws, 3, 0.3);
}

TEST(RngTest, ChanceHappensAsOftenAsItShould) {
  Rng rng(4, 0);
  int happened = 0;
  for (int i = 0; i < 10'000; ++i) happened += rng.chance(0.3);
  EXPECT_NEAR(happened, 3000, 200);
  EXPECT_FALSE(rng.chance(0));
  EXPECT_TRUE(rng.chance(1));
}

}  // namespace
}  // namespace tensorpack
