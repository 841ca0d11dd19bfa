// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/timer.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "tensorpack/utils/error.h"
#include "tests/utils/support.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::ThrowsMessage;

// The clock ticks in nanoseconds: reading it often enough moves any timer.
void wait_until_moved(const Timer& timer, double from) {
  while (timer.seconds() <= from) {
  }
}

TEST(TimerTest, RunsFromTheStart) {
  const Timer timer;
  EXPECT_FALSE(timer.is_paused());
  wait_until_moved(timer, 0);
}

TEST(TimerTest, StandsStillWhilePaused) {
  Timer timer, other;
  wait_until_moved(timer, 0);
  timer.pause();
  EXPECT_TRUE(timer.is_paused());
  const double paused_at = timer.seconds();
  wait_until_moved(other, other.seconds());
  EXPECT_EQ(timer.seconds(), paused_at);
  timer.pause();
  EXPECT_EQ(timer.seconds(), paused_at);
  timer.resume();
  timer.resume();
  EXPECT_FALSE(timer.is_paused());
  wait_until_moved(timer, paused_at);
}

TEST(TimerTest, ResetStartsFromZeroAndRuns) {
  Timer timer;
  wait_until_moved(timer, 1e-3);
  timer.pause();
  const double before = timer.seconds();
  timer.reset();
  EXPECT_FALSE(timer.is_paused());
  EXPECT_LT(timer.seconds(), before);
}

TEST(TimedOperationTest, LogsTheTimeAtTheCaller) {
  const std::string text = stdout_of([] { const TimedOperation timed("Load data"); });
  EXPECT_THAT(text, AllOf(HasSubstr("@timer_test.cpp:"), HasSubstr("Load data finished, time: ")));
  EXPECT_THAT(text, Not(HasSubstr("started")));
}

TEST(TimedOperationTest, LogsTheStartOnRequest) {
  EXPECT_THAT(stdout_of([] { const TimedOperation timed("Load data", {.log_start = true}); }),
              AllOf(HasSubstr("Load data started ..."), HasSubstr("Load data finished")));
}

TEST(TimedOperationTest, SaysThatTheScopeFailed) {
  EXPECT_THAT(stdout_of([] {
                try {
                  const TimedOperation timed("Load data");
                  throw std::runtime_error("no data");
                } catch (const std::runtime_error&) {
                }
              }),
              HasSubstr("Load data failed, time: "));
}

TEST(TotalTimerTest, SumsUpScopesOfOneMessage) {
  const TotalTimer::Total before = TotalTimer::totals()["TotalTimerTest"];
  double seconds = before.seconds;
  for (int i = 0; i < 3; ++i) {
    const TotalTimer timer("TotalTimerTest");
    const Timer inner;
    wait_until_moved(inner, 0);
    seconds += inner.seconds();
  }
  const TotalTimer::Total total = TotalTimer::totals().at("TotalTimerTest");
  EXPECT_EQ(total.count - before.count, 3);
  EXPECT_GT(total.seconds, seconds * 0.99);
}

TEST(IterSpeedCounterTest, LogsEveryFewCalls) {
  IterSpeedCounter counter(3, "loop");
  EXPECT_THAT(stdout_of([&] { counter(), counter(); }), IsEmpty());
  EXPECT_THAT(stdout_of([&] { counter(); }),
              AllOf(HasSubstr("@timer_test.cpp:"), HasSubstr("loop: "), HasSubstr("3 times")));
  EXPECT_EQ(counter.count(), 3);
}

TEST(IterSpeedCounterTest, RefusesNoPeriod) {
  EXPECT_THAT([] { IterSpeedCounter counter(0); }, ThrowsMessage<Error>(HasSubstr("got 0")));
}

}  // namespace
}  // namespace tensorpack
