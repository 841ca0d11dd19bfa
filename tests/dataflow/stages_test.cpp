// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <set>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shard.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/dataflow/take.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using testing::ThrowsMessage;
using testing::UnorderedElementsAreArray;

const auto drop_all = [](DataPoint) -> std::optional<DataPoint> { return std::nullopt; };

TEST(MapTest, AppliesTheFunctionAndKeepsTheSize) {
  const auto flow = numbers(3) | map([](DataPoint p) { return DataPoint{p[0] * 10}; });
  EXPECT_EQ(flow->size(), 3);
  EXPECT_THAT(values(*flow), ElementsAre(0, 10, 20));
}

TEST(MapTest, NulloptDropsAndMakesTheSizeUnknown) {
  const auto flow = numbers(5) | map([](DataPoint p) -> std::optional<DataPoint> {
                      if (p[0].item<int64_t>() == 2) return std::nullopt;
                      return p;
                    });
  EXPECT_EQ(flow->size(), std::nullopt);
  EXPECT_THAT(values(*flow), ElementsAre(0, 1, 3, 4));
}

TEST(MapTest, ExceptionReachesTheConsumer) {
  struct Mine {};
  const auto flow = numbers(5) | map([](DataPoint) -> DataPoint { throw Mine(); });
  EXPECT_THROW(flow->next(), Mine);
}

TEST(RepeatTest, TakesConsecutivePassesOfTheFlow) {
  const auto once = numbers(3) | shuffle({.seed = 5});
  const auto twice = numbers(3) | shuffle({.seed = 5}) | repeat(2);
  EXPECT_EQ(twice->size(), 6);
  auto expected = values_of_pass(*once, 2);
  const auto second = values_of_pass(*once, 3);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(values_of_pass(*twice, 1), expected);
}

TEST(RepeatTest, ForeverNeverEnds) {
  const auto flow = numbers(3) | repeat();
  EXPECT_EQ(flow->size(), std::nullopt);
  EXPECT_THAT(values(*flow, 8), ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

TEST(RepeatTest, EmptyPassForeverIsAnErrorNotALoop) {
  const auto flow = numbers(3) | map(drop_all) | repeat();
  EXPECT_THAT([&] { flow->next(); }, ThrowsMessage<Error>(HasSubstr("[repeat] pass 1")));
  EXPECT_THAT(values(*(numbers(0) | repeat(3))), IsEmpty());
}

TEST(RepeatTest, ZeroTimesIsAnError) {
  EXPECT_THAT([] { repeat(0); }, ThrowsMessage<Error>(HasSubstr("must be positive")));
}

TEST(TakeTest, EndsThePassEarlyAndKnowsItsSize) {
  const auto flow = numbers(5) | take(2);
  EXPECT_EQ(flow->size(), 2);
  EXPECT_THAT(values(*flow), ElementsAre(0, 1));
  EXPECT_EQ((numbers(1) | take(2))->size(), 1);
  EXPECT_EQ((numbers(1) | repeat() | take(2))->size(), std::nullopt);
}

TEST(ShuffleTest, YieldsEachDatapointOnceInAnOrderOfItsOwnPerPass) {
  const auto plain = values_of_pass(*(numbers(50) | take(50)), 0);
  const auto flow = numbers(50) | shuffle({.seed = 1});
  const auto first = values_of_pass(*flow, 0);
  const auto second = values_of_pass(*flow, 1);
  EXPECT_THAT(first, UnorderedElementsAreArray(plain));
  EXPECT_THAT(second, UnorderedElementsAreArray(plain));
  EXPECT_NE(first, plain);
  EXPECT_NE(first, second);
  EXPECT_NE(first, values_of_pass(*(numbers(50) | shuffle({.seed = 2})), 0));
}

// The order is part of the contract: a resumed run on another machine must see the same data.
TEST(ShuffleTest, OrderIsTheSameOnEveryPlatform) {
  EXPECT_THAT(values(*(numbers(8) | shuffle({.seed = 1}))), ElementsAre(3, 7, 1, 6, 5, 0, 2, 4));
}

TEST(ShuffleTest, BufferReadsNoFurtherAheadThanItsSize) {
  const auto flow = numbers(100) | shuffle(10, {.seed = 1});
  const auto order = values(*flow);
  ASSERT_THAT(order, SizeIs(100));
  for (int64_t i = 0; i < 100; ++i) EXPECT_LT(order[i], i + 10) << "at " << i;
  EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), 100);
}

TEST(ShuffleTest, EveryOrderIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  const auto flow = numbers(3) | shuffle({.seed = 11});
  for (int pass = 0; pass < 6000; ++pass) ++counts[values_of_pass(*flow, pass)];
  ASSERT_THAT(counts, SizeIs(6));
  // 1000 expected of each; the standard deviation is 29.
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(ShuffleTest, BufferOfOneKeepsTheOrder) {
  EXPECT_THAT(values(*(numbers(4) | shuffle(1))), ElementsAre(0, 1, 2, 3));
}

TEST(ShuffleTest, UnknownSizeNeedsABuffer) {
  EXPECT_THAT([] { numbers(3) | repeat() | shuffle(); },
              ThrowsMessage<Error>(HasSubstr("does not know its size")));
  EXPECT_THAT([] { shuffle(0); }, ThrowsMessage<Error>(HasSubstr("got 0")));
  EXPECT_THAT(values(*(numbers(3) | repeat() | shuffle(2)), 20), SizeIs(20));
}

TEST(ShardTest, PartsAreEquallyLongAndHaveEverythingElseOnce) {
  for (int64_t size = 0; size < 12; ++size) {
    std::set<int64_t> seen;
    for (int rank = 0; rank < 3; ++rank) {
      const auto flow = numbers(size) | shard({.rank = rank, .size = 3});
      const auto part = values(*flow);
      EXPECT_THAT(part, SizeIs(size / 3));
      EXPECT_EQ(flow->size(), size / 3);
      seen.insert(part.begin(), part.end());
    }
    EXPECT_THAT(seen, SizeIs(size / 3 * 3));
  }
}

TEST(ShardTest, UnequalPartsHaveEverythingOnce) {
  for (int64_t size = 0; size < 12; ++size) {
    std::multiset<int64_t> seen;
    for (int rank = 0; rank < 3; ++rank) {
      const auto flow = numbers(size) | shard({.rank = rank, .size = 3, .equal = false});
      const auto part = values(*flow);
      EXPECT_EQ(flow->size(), std::ssize(part));
      seen.insert(part.begin(), part.end());
    }
    EXPECT_THAT(seen, SizeIs(size));
    EXPECT_THAT(std::set<int64_t>(seen.begin(), seen.end()), SizeIs(size));
  }
}

// Of a round that is not complete every part knows, whether it reads or skips to the end.
TEST(ShardTest, EqualPartsCountWhatTheyLeaveOut) {
  for (int rank = 0; rank < 3; ++rank) {
    const auto flow = numbers(11) | shard({.rank = rank, .size = 3});
    const auto left_out = [&flow] { return datapoints_left_out(*detail::stats_of(*flow)); };
    EXPECT_EQ(values(*flow).size(), 3);
    EXPECT_EQ(left_out(), 2) << "rank " << rank;
    EXPECT_FALSE(flow->next());
    EXPECT_EQ(left_out(), 2) << "once in a pass";
    flow->start(1);
    EXPECT_EQ(flow->skip(100), 3);
    EXPECT_EQ(left_out(), 4);
    const auto all = numbers(11) | shard({.rank = rank, .size = 3, .equal = false});
    values(*all);
    EXPECT_EQ(datapoints_left_out(*detail::stats_of(*all)), 0);
    const auto whole = numbers(9) | shard({.rank = rank, .size = 3});
    values(*whole);
    EXPECT_EQ(datapoints_left_out(*detail::stats_of(*whole)), 0);
  }
}

// As those of the datapoint in front of it, so that it does not matter where shard() stands.
TEST(ShardTest, RandomNumbersBehindItAreThoseOfTheDatapointsInAllParts) {
  const auto draw = [](DataPoint p, Rng& rng) {
    return DataPoint{
        torch::stack({p[0], torch::scalar_tensor(static_cast<int64_t>(rng.below(1000))),
                      torch::randint(1000, {})})};
  };
  const auto batched = [](DataPoint /*point*/, Rng& rng) {
    return DataPoint{torch::scalar_tensor(static_cast<int64_t>(rng.below(1'000'000)))};
  };
  std::set<int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const Stage part = shard({.rank = rank, .size = 3});
    const auto before = numbers(12) | map(draw, {.seed = 5}) | part;
    const auto expected = values(*before);
    EXPECT_EQ(values(*(numbers(12) | part | map(draw, {.seed = 5}))), expected);
    EXPECT_EQ(values(*(numbers(12) | part | parallel_map(draw, {.threads = 2, .seed = 5}))),
              expected);
    EXPECT_EQ(values(*(numbers(12) | part | map_and_batch(draw, 4, {.threads = 2, .seed = 5}))),
              expected);
    const auto skipped = numbers(12) | part | map(draw, {.seed = 5});
    skipped->skip(2);
    EXPECT_EQ(values(*skipped), std::vector(expected.begin() + 6, expected.end()));
    // What stands between changes nothing of it: parts draw other numbers.
    const auto far = numbers(24) | part | shuffle({.seed = 1}) | batch(2) | repeat(2) |
                     prefetch(2) | map(batched, {.seed = 6});
    for (const int64_t value : values(*far)) seen.insert(value);
  }
  EXPECT_THAT(seen, SizeIs(3 * 8));
}

TEST(ShardTest, PartsOfPartsHaveNumbersOfTheirOwn) {
  const auto draw = [](DataPoint /*point*/, Rng& rng) {
    return DataPoint{torch::scalar_tensor(static_cast<int64_t>(rng.below(1'000'000)))};
  };
  const auto all = values(*(numbers(12) | map(draw, {.seed = 5})));
  for (int outer = 0; outer < 2; ++outer) {
    for (int inner = 0; inner < 3; ++inner) {
      const auto flow = numbers(12) | shard({.rank = outer, .size = 2}) |
                        shard({.rank = inner, .size = 3}) | map(draw, {.seed = 5});
      EXPECT_THAT(values(*flow), ElementsAre(all[2 * inner + outer], all[2 * inner + outer + 6]));
    }
  }
}

TEST(ShardTest, AProcessAloneGetsAll) {
  EXPECT_THAT(values(*(numbers(3) | shard())), ElementsAre(0, 1, 2));
}

TEST(ShardTest, TakesItsPlaceFromTheLauncher) {
  const ScopedEnv rank("TENSORPACK_RANK", "1");
  const ScopedEnv size("TENSORPACK_SIZE", "2");
  EXPECT_THAT(values(*(numbers(5) | shard())), ElementsAre(1, 3));
}

TEST(ShardTest, WrongPartsAreToldAtOnce) {
  EXPECT_THAT([] { shard({.rank = 3, .size = 3}); },
              ThrowsMessage<Error>(HasSubstr("part 3 of 3")));
  EXPECT_THAT([] { shard({.rank = 0}); }, ThrowsMessage<Error>(HasSubstr("Set both")));
}

}  // namespace
}  // namespace tensorpack::test
