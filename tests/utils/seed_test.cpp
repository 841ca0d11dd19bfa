// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/seed.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>

namespace tensorpack {
namespace {

TEST(SeedTest, TheGlobalSeedSeedsLibtorchToo) {
  set_global_seed(5);
  EXPECT_EQ(global_seed(), 5U);
  const at::Tensor expected = at::rand({4});
  set_global_seed(5);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(SeedTest, SeedsThatAreHandedOutRepeatAndDiffer) {
  const auto draw = [] {
    set_global_seed(9);
    return std::vector<uint64_t>{seed_or_next({}), seed_or_next({}), seed_or_next(3)};
  };
  const std::vector<uint64_t> first = draw();
  EXPECT_EQ(first, draw());
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(first[2], 3U);
}

TEST(SeedTest, DerivedSeedsAreAllDifferent) {
  std::set<uint64_t> seeds;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    for (uint64_t number = 0; number < 30; ++number) seeds.insert(derive_seed(seed, number));
  }
  EXPECT_EQ(seeds.size(), 900U);
  EXPECT_NE(derive_seed(1, "W"), derive_seed(1, "b"));
  EXPECT_NE(derive_seed(1, "W"), derive_seed(2, "W"));
}

}  // namespace
}  // namespace tensorpack
