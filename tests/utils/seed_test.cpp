// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/seed.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>

#include "tensorpack/utils/abandonable_threads.h"

namespace tensorpack {
namespace {

TEST(SeedTest, TheGlobalSeedSeedsLibtorchToo) {
  set_global_seed(5);
  EXPECT_EQ(global_seed(), 5U);
  EXPECT_EQ(user_seed(), 5U);
  const at::Tensor expected = at::rand({4});
  set_global_seed(5);
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(SeedTest, SeedsThatAreHandedOutRepeatAndDiffer) {
  const auto draw = [] {
    set_global_seed(9);
    const StageSeed stages[] = {{}, {}, StageSeed(3)};
    return std::vector<uint64_t>{stages[0].value(), stages[1].value(), stages[2].value()};
  };
  const std::vector<uint64_t> first = draw();
  EXPECT_EQ(first, draw());
  EXPECT_NE(first[0], first[1]);
  EXPECT_EQ(first[2], 3U);
}

TEST(SeedTest, StagesAreNumberedWhenTheyAreMadeAndSeededWhenTheyAreAsked) {
  set_global_seed(9);
  const StageSeed first, second;
  EXPECT_EQ(second.value(), derive_seed(9, 1));
  EXPECT_EQ(first.value(), derive_seed(9, 0));
  StageSeed::counted_apart();
  EXPECT_EQ(StageSeed().value(), derive_seed(9, 2));
  set_global_seed(10);
  EXPECT_EQ(first.value(), derive_seed(9, 0)) << "a seed counts for what is made after it";
}

TEST(SeedTest, ATrainingSettlesTheSeedOfItsOwnThreads) {
  set_global_seed(9);
  const StageSeed stage, given(3);
  TrainingSeed of_checkpoint, of_another;
  of_checkpoint.settle(4);
  of_another.settle(5);
  uint64_t on_thread = 0;
  {
    const SeedScope scope(of_checkpoint);
    EXPECT_EQ(stage.value(), derive_seed(4, 0));
    EXPECT_EQ(given.value(), 3U);
    AbandonableThreads threads("reader");
    threads.start([&] { on_thread = stage.value(); });
    threads.end();
    const SeedScope inner(of_another);
    EXPECT_EQ(stage.value(), derive_seed(5, 0));
  }
  EXPECT_EQ(on_thread, derive_seed(4, 0));
  EXPECT_EQ(stage.value(), derive_seed(9, 0));
  EXPECT_EQ(global_seed(), 9U) << "what the user has set stays";
  EXPECT_EQ(of_checkpoint.value(), 4U);
  EXPECT_EQ(TrainingSeed().value(), 9U);
}

TEST(SeedTest, StagesThatAreMadeWhileAnotherOneDrawsFollowFromIt) {
  set_global_seed(9);
  for (int i = 0; i < 2; ++i) {
    const NestedSeeds nested(7);
    EXPECT_EQ(StageSeed().value(), derive_seed(7, 0));
    EXPECT_EQ(StageSeed().value(), derive_seed(7, 1));
  }
  EXPECT_EQ(StageSeed().value(), derive_seed(9, 0));
}

TEST(SeedTest, SeedsAreReadBack) {
  EXPECT_EQ(parse_seed("18446744073709551615"), 18446744073709551615U);
  for (const char* text : {"", "7 ", "-7", "x", "18446744073709551616"}) {
    EXPECT_EQ(parse_seed(text), std::nullopt) << text;
  }
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
