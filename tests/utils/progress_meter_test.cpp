// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/progress_meter.h"

#include <gmock/gmock.h>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tests/utils/support.h"

namespace tensorpack {
namespace {

using detail::progress_refresh_seconds;
using detail::render_progress;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::ThrowsMessage;

TEST(RenderProgressTest, ShowsAllPartsInOrder) {
  EXPECT_EQ(
      render_progress(
          {.done = 42, .total = 100, .seconds = 10, .description = "train", .postfix = "cost=0.3"},
          std::nullopt),
      "train:  42%|########            | 42/100 [00:10<00:13, 4.20it/s, cost=0.3]");
}

TEST(RenderProgressTest, NothingDoneHasNoRate) {
  EXPECT_EQ(render_progress({.total = 8}, std::nullopt),
            "  0%|                    | 0/8 [00:00<?, ?it/s]");
}

TEST(RenderProgressTest, UnknownTotalShowsTheCount) {
  EXPECT_EQ(render_progress({.done = 7200, .seconds = 3601, .unit = "img"}, std::nullopt),
            "7200img [1:00:01, 2.00img/s]");
}

TEST(RenderProgressTest, RateKeepsItsDigits) {
  const auto rate = [](std::int64_t done, double seconds) {
    return render_progress({.done = done, .seconds = seconds}, std::nullopt);
  };
  EXPECT_THAT(rate(12345, 10), HasSubstr(", 1234it/s"));
  EXPECT_THAT(rate(1, 80), HasSubstr(", 0.0125it/s"));
}

TEST(RenderProgressTest, MoreThanTheTotalStaysAtTheEnd) {
  EXPECT_EQ(render_progress({.done = 6, .total = 4, .seconds = 2}, std::nullopt),
            "100%|####################| 6/4 [00:02<00:00, 3.00it/s]");
}

TEST(RenderProgressTest, FillsTheWidth) {
  EXPECT_EQ(render_progress({.done = 1, .total = 2, .seconds = 1}, 40),
            " 50%|###   | 1/2 [00:01<00:01, 1.00it/s]");
}

TEST(RenderProgressTest, NarrowWidthDropsTheBarThenTheEnd) {
  const detail::ProgressState state{.done = 1, .total = 2, .seconds = 1};
  EXPECT_EQ(render_progress(state, 34), " 50% 1/2 [00:01<00:01, 1.00it/s]");
  EXPECT_EQ(render_progress(state, 12), " 50% 1/2 [00");
}

TEST(RenderProgressTest, CountsAndCutsWholeCharacters) {
  const detail::ProgressState state{
      .done = 1, .total = 2, .seconds = 1, .description = "\u00e9\u00e9"};
  EXPECT_THAT(render_progress(state, 44), HasSubstr(" 50%|###   | 1/2"));
  EXPECT_EQ(render_progress(state, 1), "\u00e9");
}

TEST(ProgressMeterTest, IsDueWhenTheNextAdvanceDraws) {
  FakeConsole fake(false);
  ProgressMeter often({.refresh_seconds = 0, .console = &fake.console()});
  ProgressMeter rarely({.refresh_seconds = 1e6, .console = &fake.console()});
  EXPECT_TRUE(often.is_due());
  EXPECT_FALSE(rarely.is_due());
}

TEST(ProgressMeterTest, PipeGetsOnlyTheFinalLineBeforeTheRefresh) {
  FakeConsole fake(/*is_terminal=*/false);
  {
    ProgressMeter meter({.total = 3, .refresh_seconds = 1e6, .console = &fake.console()});
    for (int i = 0; i < 3; ++i) meter.advance();
    EXPECT_THAT(fake.text(), IsEmpty());
  }
  EXPECT_THAT(fake.text(), MatchesRegex("100%\\|####################\\| 3/3 \\[.*\\]\n"));
}

TEST(ProgressMeterTest, PipeGetsALinePerRefresh) {
  FakeConsole fake(/*is_terminal=*/false);
  ProgressMeter meter({.total = 4, .refresh_seconds = 0, .console = &fake.console()});
  meter.advance(1);
  meter.set_postfix("cost=1");
  meter.advance(2);
  EXPECT_EQ(meter.done(), 3);
  EXPECT_THAT(fake.text(), MatchesRegex(" 25%[^\n]*s\\]\n 75%[^\n]*, cost=1\\]\n"));
}

TEST(ProgressMeterTest, SecondCloseDoesNothing) {
  FakeConsole fake(/*is_terminal=*/false);
  ProgressMeter meter({.console = &fake.console()});
  meter.close();
  const std::string once = fake.text();
  meter.close();
  EXPECT_EQ(fake.text(), once);
}

TEST(ProgressMeterTest, TerminalRedrawsInPlaceAndEndsTheLine) {
  FakeConsole fake(/*is_terminal=*/true);
  {
    ProgressMeter meter({.total = 2, .refresh_seconds = 0, .console = &fake.console()});
    meter.advance();
  }
  EXPECT_THAT(fake.text(),
              MatchesRegex("\r\x1b\\[K  0%[^\n]*\r\x1b\\[K 50%[^\n]*\r\x1b\\[K 50%[^\n]*\n"));
}

TEST(ProgressMeterTest, RefusesANegativeTotal) {
  EXPECT_THAT([] { ProgressMeter meter({.total = -1}); },
              ThrowsMessage<Error>(HasSubstr("must not be negative, got -1")));
}

class ProgressRefreshTest : public testing::Test {
 private:
  ScopedEnv refresh_{"TENSORPACK_PROGRESS_REFRESH", std::nullopt};
  ScopedEnv job_{"SLURM_JOB_ID", std::nullopt};
  ScopedEnv nodes_{"SLURM_JOB_NUM_NODES", std::nullopt};
  ScopedEnv openmpi_{"OMPI_COMM_WORLD_SIZE", std::nullopt};
};

TEST_F(ProgressRefreshTest, IsRareWithoutATerminal) {
  EXPECT_EQ(progress_refresh_seconds(true), 0.5);
  EXPECT_EQ(progress_refresh_seconds(false), 180);
}

TEST_F(ProgressRefreshTest, DependsOnTheLauncher) {
  {
    const ScopedEnv openmpi("OMPI_COMM_WORLD_SIZE", "2");
    EXPECT_EQ(progress_refresh_seconds(false), 60);
  }
  const ScopedEnv job("SLURM_JOB_ID", "17");
  EXPECT_EQ(progress_refresh_seconds(false), 15);
  const ScopedEnv nodes("SLURM_JOB_NUM_NODES", "2");
  EXPECT_EQ(progress_refresh_seconds(false), 60);
}

TEST_F(ProgressRefreshTest, EnvironmentOverrides) {
  const ScopedEnv refresh("TENSORPACK_PROGRESS_REFRESH", "2.5");
  EXPECT_EQ(progress_refresh_seconds(true), 2.5);
  EXPECT_EQ(progress_refresh_seconds(false), 2.5);
}

}  // namespace
}  // namespace tensorpack
