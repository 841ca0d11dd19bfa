// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/stats.h"

#include <gmock/gmock.h>

#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

using Ints = std::vector<std::int64_t>;

TEST(StatCounterTest, SumsUpWhatWasFed) {
  StatCounter counter;
  for (double value : {3.0, -1.0, 4.0}) counter.feed(value);
  EXPECT_EQ(counter.count(), 3);
  EXPECT_EQ(counter.sum(), 6);
  EXPECT_EQ(counter.average(), 2);
  EXPECT_EQ(counter.max(), 4);
  EXPECT_EQ(counter.min(), -1);
}

TEST(StatCounterTest, EmptyHasNoAverage) {
  StatCounter counter;
  counter.feed(1);
  counter.reset();
  EXPECT_EQ(counter.sum(), 0);
  EXPECT_THAT([&] { counter.average(); }, ThrowsMessage<Error>(HasSubstr("no value was fed")));
  EXPECT_THROW(counter.max(), Error);
  EXPECT_THROW(counter.min(), Error);
}

TEST(RatioCounterTest, EmptyIsZero) { EXPECT_EQ(RatioCounter().ratio(), 0); }

TEST(RatioCounterTest, AddsCountsNotRatios) {
  RatioCounter counter;
  counter.feed(1);
  counter.feed(0, 3);
  EXPECT_EQ(counter.ratio(), 0.25);
  EXPECT_EQ(counter.count(), 1);
  EXPECT_EQ(counter.total(), 4);
}

TEST(AccuracyTest, IsTheRatio) {
  Accuracy accuracy;
  accuracy.feed(3, 4);
  EXPECT_EQ(accuracy.accuracy(), 0.75);
}

TEST(BinaryStatisticsTest, CountsPrecisionAndRecall) {
  BinaryStatistics stats;
  stats.feed(Ints{1, 1, 1, 1, 0}, Ints{1, 0, 0, 0, 1});
  EXPECT_EQ(stats.precision(), 0.25);
  EXPECT_EQ(stats.recall(), 0.5);
  EXPECT_EQ(stats.false_positive(), 0.75);
  EXPECT_EQ(stats.false_negative(), 0.5);
}

TEST(BinaryStatisticsTest, RatiosOfNothingAreZero) {
  BinaryStatistics stats;
  stats.feed(false, false);
  EXPECT_EQ(stats.precision(), 0);
  EXPECT_EQ(stats.recall(), 0);
  EXPECT_EQ(stats.false_positive(), 0);
  EXPECT_EQ(stats.false_negative(), 0);
}

TEST(BinaryStatisticsTest, RefusesWhatIsNotBinary) {
  BinaryStatistics stats;
  EXPECT_THAT(
      [&] {
        stats.feed(Ints{1, 0}, Ints{1});
      },
      ThrowsMessage<Error>(HasSubstr("2 predictions for 1 label")));
  EXPECT_THAT(
      [&] {
        stats.feed(Ints{1, 2}, Ints{1, 0});
      },
      ThrowsMessage<Error>(HasSubstr("must be 0 or 1, got 2")));
  EXPECT_EQ(stats.recall(), 0);
}

TEST(OnlineMomentsTest, VarianceIsThatOfASample) {
  OnlineMoments moments;
  for (double value : {2.0, 4.0, 4.0, 6.0}) moments.feed(value);
  EXPECT_EQ(moments.count(), 4);
  EXPECT_DOUBLE_EQ(moments.mean(), 4);
  EXPECT_DOUBLE_EQ(moments.variance(), 8.0 / 3);
  EXPECT_DOUBLE_EQ(moments.std() * moments.std(), 8.0 / 3);
}

TEST(MedianTest, IsTheValueInTheMiddleOrTheLargerOfTwo) {
  EXPECT_EQ(median({3, 100, 1}), 3);
  EXPECT_EQ(median({4, 1, 3, 2}), 3);
  EXPECT_THROW(median({}), Error);
}

TEST(OnlineMomentsTest, OneValueHasNoVariance) {
  OnlineMoments moments;
  moments.feed(7);
  EXPECT_EQ(moments.mean(), 7);
  EXPECT_EQ(moments.variance(), 0);
}

TEST(OnlineMomentsTest, LargeOffsetLosesNothing) {
  OnlineMoments moments;
  for (double value : {4.0, 7.0, 13.0, 16.0}) moments.feed(1e9 + value);
  EXPECT_DOUBLE_EQ(moments.variance(), 30);
}

}  // namespace
}  // namespace tensorpack
