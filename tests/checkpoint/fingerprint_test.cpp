// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/fingerprint.h"

#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Lines = std::vector<std::string>;

// Of two programs that differ in one part.
Lines changes(FingerprintPart before, FingerprintPart now) {
  return differences({{std::move(before)}}, {{std::move(now)}});
}

TEST(FingerprintTest, ATextGivesItBack) {
  const Fingerprint fingerprint{
      {{.name = "", .lines = {"seed = 7", "optimizer = \"SGD\""}},
       {.name = "step", .lines = {}, .under = "cpu"},
       {.name = "Schedule", .lines = {"rate at epoch 0 = 1"}, .may_grow = true}}};
  EXPECT_EQ(parse_fingerprint(to_text(fingerprint)), fingerprint);
  EXPECT_EQ(to_text(parse_fingerprint(to_text(fingerprint))), to_text(fingerprint));
}

TEST(FingerprintTest, OtherTextsAreErrors) {
  for (const char* text : {"", "{", "7", "[7]", "[{}]", R"([{"name": 1, "lines": []}])",
                           R"([{"name": "a", "lines": [1]}])"}) {
    EXPECT_THROW(parse_fingerprint(text), Error) << text;
  }
}

TEST(FingerprintTest, ALineThatIsNoUtf8IsWritten) {
  EXPECT_EQ(parse_fingerprint(to_text({{{.name = "a\xff"}}})).parts.size(), 1);
}

TEST(DifferencesTest, TheSameHasNone) {
  EXPECT_THAT(changes({.name = "a", .lines = {"x", "y"}}, {.name = "a", .lines = {"x", "y"}}),
              IsEmpty());
}

TEST(DifferencesTest, ValuesAreComparedByTheirNames) {
  EXPECT_THAT(
      changes({.lines = {"lr = 0.1", "momentum = 0.9", "seed = 7"}},
              {.lines = {"lr = 0.01", "nesterov = true", "seed = 7"}}),
      ElementsAre("lr was 0.1, is 0.01", "new is 'nesterov = true'", "gone is 'momentum = 0.9'"));
}

TEST(DifferencesTest, LinesThatAreAsManyBecameEachOther) {
  EXPECT_THAT(changes({.name = "data", .lines = {"FakeData", "Shuffle(100)", "Batch(4)"}},
                      {.name = "data", .lines = {"FakeData", "Shuffle(50)", "Batch(8)"}}),
              ElementsAre("data: was 'Shuffle(100)', is 'Shuffle(50)'",
                          "data: was 'Batch(4)', is 'Batch(8)'"));
}

TEST(DifferencesTest, AnAddedLineIsNotTheEndOfAllBehindIt) {
  EXPECT_THAT(changes({.name = "step", .lines = {"a", "b", "b", "c"}},
                      {.name = "step", .lines = {"a", "relu", "b", "b", "b", "c"}}),
              ElementsAre("step: new is 'relu'", "step: new is 'b'"));
  EXPECT_THAT(changes({.name = "step", .lines = {"a", "b", "c"}}, {.name = "step", .lines = {"c"}}),
              ElementsAre("step: gone is 'a'", "step: gone is 'b'"));
}

TEST(DifferencesTest, AnotherOrderIsADifference) {
  EXPECT_THAT(changes({.name = "data", .lines = {"a", "b", "c"}},
                      {.name = "data", .lines = {"a", "c", "b"}}),
              ElementsAre("data: in another order, from 'c' on, where 'b' was"));
}

TEST(DifferencesTest, WhatWasFoundUnderOtherCircumstancesIsNotCompared) {
  EXPECT_THAT(changes({.name = "step", .lines = {"a"}, .under = "cpu"},
                      {.name = "step", .lines = {"b"}, .under = "cuda"}),
              IsEmpty());
}

TEST(DifferencesTest, PartsThatOnlyOneHasAreDifferent) {
  EXPECT_THAT(differences({{{.name = "old", .lines = {"a"}}}}, {{{.name = "new", .lines = {"b"}}}}),
              ElementsAre("new: new is 'b'", "old: gone is 'a'"));
}

TEST(DifferencesTest, AListMayGrowWhereItSaysSo) {
  const FingerprintPart two{.name = "s", .lines = {"a", "b"}, .may_grow = true};
  const FingerprintPart three{.name = "s", .lines = {"a", "b", "c"}, .may_grow = true};
  EXPECT_THAT(changes(two, three), IsEmpty());
  EXPECT_THAT(changes(three, two), IsEmpty());
  EXPECT_THAT(changes(two, {.name = "s", .lines = {"a", "x", "c"}, .may_grow = true}),
              ElementsAre("s: was 'b', is 'x'"));
  EXPECT_THAT(changes(two, {.name = "s", .may_grow = true}),
              ElementsAre("s: gone is 'a'", "s: gone is 'b'"));
}

}  // namespace
}  // namespace tensorpack
