// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/schedule.h"

#include <gmock/gmock.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<double> values_at(const Schedule& schedule, const std::vector<double>& times) {
  std::vector<double> values;
  for (const double time : times) values.push_back(schedule(time));
  return values;
}

testing::Matcher<double> near(double value) { return DoubleNear(value, 1e-9); }

TEST(ScheduleTest, CosineFallsByHalfAWaveAndStays) {
  EXPECT_THAT(values_at(schedule::cosine({.from = 1, .to = 0.2, .length = 10}), {0, 5, 10, 99}),
              ElementsAre(near(1), near(0.6), near(0.2), near(0.2)));
  EXPECT_NEAR(schedule::cosine({.from = 1, .length = 4})(1), 0.8535533906, 1e-9);
}

TEST(ScheduleTest, PolynomialFallsByItsPower) {
  EXPECT_THAT(values_at(schedule::polynomial({.from = 1, .to = 0, .length = 4, .power = 2}),
                        {0, 1, 2, 4, 5}),
              ElementsAre(near(1), near(0.5625), near(0.25), near(0), near(0)));
  EXPECT_THAT(values_at(schedule::linear({.from = 1, .to = 3, .length = 4}), {0, 1, 4}),
              ElementsAre(near(1), near(1.5), near(3)));
}

TEST(ScheduleTest, StaircaseIsExponentialInJumps) {
  EXPECT_THAT(
      values_at(schedule::staircase({.from = 8, .factor = 0.25, .every = 2}), {0, 1, 1.9, 2, 3, 4}),
      ElementsAre(near(8), near(8), near(8), near(2), near(2), near(0.5)));
  EXPECT_THROW(schedule::staircase({.from = 8, .every = 0}), Error);
}

TEST(ScheduleTest, ExponentialHasNoJumps) {
  EXPECT_THAT(
      values_at(schedule::exponential({.from = 8, .factor = 0.25, .every = 2}), {0, 1, 2, 4}),
      ElementsAre(near(8), near(4), near(2), near(0.5)));
}

TEST(ScheduleTest, StepsHoldFromTheirTimeOn) {
  EXPECT_THAT(values_at(schedule::steps(1, {{2, 0.1}, {4, 0.01}}), {0, 1.9, 2, 3, 4, 9}),
              ElementsAre(1, 1, 0.1, 0.1, 0.01, 0.01));
}

TEST(ScheduleTest, WarmUpRisesToWhereTheOtherBegins) {
  const Schedule schedule =
      schedule::warm_up(schedule::cosine({.from = 0.8, .length = 10}), {.length = 4, .from = 0.4});
  EXPECT_THAT(values_at(schedule, {0, 2, 4, 9, 14}),
              ElementsAre(near(0.4), near(0.6), near(0.8), near(0.4), near(0)));
}

TEST(ScheduleTest, OneCycleRisesToThePeakAndFalls) {
  const Schedule schedule = schedule::one_cycle({.peak = 1, .length = 10});
  EXPECT_THAT(values_at(schedule, {0, 1.5, 3, 6.5, 10, 11}),
              ElementsAre(near(0.04), near(0.52), near(1), near(0.500002), near(4e-6), near(4e-6)));
}

TEST(ScheduleTest, Compose) {
  const Schedule saw = schedule::repeat(schedule::linear({.from = 1, .to = 0, .length = 2}), 2);
  EXPECT_THAT(values_at(schedule::scale(saw, 10), {0, 1, 2, 3}), ElementsAre(10, 5, 10, 5));
  EXPECT_THAT(values_at(schedule::then(schedule::constant(7), 1, saw), {0, 1, 2}),
              ElementsAre(7, 1, 0.5));
}

TEST(ScheduleTest, RefuseWhatHasNoMeaning) {
  EXPECT_THAT([] { schedule::cosine({.from = 1}); },
              ThrowsMessage<Error>(HasSubstr("the length must be positive, got 0")));
  EXPECT_THROW(schedule::polynomial({.from = 1, .length = 1, .power = 0}), Error);
  EXPECT_THROW(schedule::steps(1, {{2, 1}, {1, 1}}), Error);
  EXPECT_THROW(schedule::one_cycle({.peak = 1, .length = 1, .rise = 1}), Error);
  EXPECT_THROW(schedule::warm_up({}, {.length = 1}), Error);
  EXPECT_THROW(schedule::exponential({.from = 1, .factor = 0}), Error);
}

}  // namespace
}  // namespace tensorpack
