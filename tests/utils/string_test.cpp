// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/string.h"

#include <gmock/gmock.h>

#include <limits>

namespace tensorpack {
namespace {

TEST(StringTest, JoinPutsTheSeparatorBetween) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(join(Words{}), "");
  EXPECT_EQ(join(Words{"a"}), "a");
  EXPECT_EQ(join(Words{"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join(Words{"a", "b"}, " "), "a b");
}

TEST(StringTest, OneIsCountedInTheSingular) {
  EXPECT_EQ(counted(0, "tensor"), "0 tensors");
  EXPECT_EQ(counted(1, "tensor"), "1 tensor");
  EXPECT_EQ(counted(2, "tensor"), "2 tensors");
  EXPECT_EQ(counted(1, "batch"), "1 batch");
  EXPECT_EQ(counted(3, "batch"), "3 batches");
  EXPECT_EQ(counted(4, "process"), "4 processes");
}

TEST(DidYouMeanTest, SuggestsTheNearestName) {
  EXPECT_EQ(did_you_mean("acuracy", {"accuracy", "cost"}),
            "Did you mean 'accuracy'? Known: accuracy, cost.");
  EXPECT_EQ(did_you_mean("conv1/w", {"conv0/W", "conv1/W"}),
            "Did you mean 'conv1/W'? Known: conv0/W, conv1/W.");
}

TEST(DidYouMeanTest, SuggestsNothingFarAway) {
  EXPECT_EQ(did_you_mean("learning_rate", {"accuracy", "cost"}), "Known: accuracy, cost.");
  EXPECT_EQ(did_you_mean("x", {"y"}), "Known: y.");
}

TEST(DidYouMeanTest, SaysWhenThereIsNothingToChooseFrom) {
  EXPECT_EQ(did_you_mean("cost", {}), "There are none.");
}

TEST(DidYouMeanTest, ListsTwelveNamesAtMost) {
  std::vector<std::string> known;
  for (char c = 'a'; c < 'a' + 12; ++c) known.emplace_back(8, c);
  EXPECT_EQ(did_you_mean("?", known), "Known: " + join(known) + ".");
  const std::string twelve = join(known);
  known.emplace_back("zzzzzzzz");
  EXPECT_EQ(did_you_mean("?", known), "Known: " + twelve + ", ...");
}

TEST(HumanizeTimeTest, ShortTimesHaveThreeDigits) {
  EXPECT_EQ(humanize_time(0), "0 seconds");
  EXPECT_EQ(humanize_time(0.01), "0.01 seconds");
  EXPECT_EQ(humanize_time(1), "1 second");
  EXPECT_EQ(humanize_time(12.34), "12.3 seconds");
}

TEST(HumanizeTimeTest, LongTimesSkipUnitsThatAreZero) {
  EXPECT_EQ(humanize_time(59.97), "1 minute");
  EXPECT_EQ(humanize_time(87), "1 minute 27 seconds");
  EXPECT_EQ(humanize_time(7200), "2 hours");
  EXPECT_EQ(humanize_time(90061), "1 day 1 hour 1 minute 1 second");
}

TEST(HumanizeTimeTest, OddTimesAreSaidToo) {
  EXPECT_EQ(humanize_time(-87), "-1 minute 27 seconds");
  EXPECT_EQ(humanize_time(std::numeric_limits<double>::infinity()), "an unknown time");
}

TEST(ParseIntegerTest, TakesWhatIsAnIntegerAndNothingElse) {
  EXPECT_EQ(parse_integer("0"), 0);
  EXPECT_EQ(parse_integer("-9223372036854775808"), std::numeric_limits<std::int64_t>::min());
  for (const char* text : {"", "abc", "7x", " 7", "1.5", "9223372036854775808"}) {
    EXPECT_EQ(parse_integer(text), std::nullopt) << text;
  }
}

TEST(HumanizeBytesTest, TakesTheLargestUnitThatFits) {
  EXPECT_EQ(humanize_bytes(0), "0 B");
  EXPECT_EQ(humanize_bytes(1023), "1023 B");
  EXPECT_EQ(humanize_bytes(1024), "1 KiB");
  EXPECT_EQ(humanize_bytes(3ull << 29), "1.5 GiB");
}

}  // namespace
}  // namespace tensorpack
