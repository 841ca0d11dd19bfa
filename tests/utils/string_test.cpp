// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/string.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tensorpack/utils/error.h"
#include "tests/support/decimal_comma.h"

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

TEST(ParseNumberTest, TakesDecimalAndHexadecimalDigitsAndNothingElse) {
  EXPECT_EQ(parse_number("0.25"), 0.25);
  EXPECT_EQ(parse_number("-1e-3"), -1e-3);
  EXPECT_EQ(parse_number("0x1.8p+1"), 3);
  EXPECT_EQ(parse_number("-0x1p-1"), -0.5);
  for (const char* text :
       {"", "-", "--1", "-0x-1p+0", "0x", "abc", "1.5x", " 1", "1,5", "0x1,8p+1"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

const std::vector<double> kNumbers = {0.0,
                                      -0.0,
                                      1.0,
                                      -0.1,
                                      1.0 / 3,
                                      std::numeric_limits<double>::max(),
                                      std::numeric_limits<double>::denorm_min(),
                                      std::numeric_limits<double>::infinity(),
                                      -std::numeric_limits<double>::infinity()};

void expect_exact_texts() {
  for (const double number : kNumbers) {
    const double read = parse_exact_text(exact_text(number));
    EXPECT_EQ(read, number) << exact_text(number);
    EXPECT_EQ(std::signbit(read), std::signbit(number)) << exact_text(number);
  }
  EXPECT_TRUE(std::isnan(parse_exact_text(exact_text(std::nan("")))));
  EXPECT_EQ(exact_text(0.375), "0x1.8p-2");
  EXPECT_EQ(parse_number("0.375"), 0.375);
  EXPECT_EQ(parse_number("0,375"), std::nullopt);
}

TEST(ExactTextTest, GivesTheVeryNumberBack) { expect_exact_texts(); }

TEST(ExactTextTest, HasAPointUnderADecimalComma) {
  TP_UNDER_DECIMAL_COMMA_OR_SKIP(comma);
  ASSERT_EQ(std::stod("1,5"), 1.5) << "the locale is in effect";
  expect_exact_texts();
}

TEST(ExactTextTest, WhatEarlierVersionsWroteUnderADecimalCommaIsRead) {
  EXPECT_EQ(parse_exact_text("0x1,8p-2"), 0.375);
}

TEST(ExactTextTest, AnythingElseIsAnError) {
  EXPECT_THROW(parse_exact_text("abc"), Error);
  EXPECT_THROW(parse_exact_text(""), Error);
}

TEST(HumanizeBytesTest, TakesTheLargestUnitThatFits) {
  EXPECT_EQ(humanize_bytes(0), "0 B");
  EXPECT_EQ(humanize_bytes(1023), "1023 B");
  EXPECT_EQ(humanize_bytes(1024), "1 KiB");
  EXPECT_EQ(humanize_bytes(3ull << 29), "1.5 GiB");
}

}  // namespace
}  // namespace tensorpack
