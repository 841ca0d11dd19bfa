// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensorpack/monitors/report/series.h"

namespace tensorpack::report {
namespace {

using testing::ElementsAre;
using testing::Le;
using testing::SizeIs;

std::vector<int64_t> steps_of(const std::vector<Point>& points) {
  std::vector<int64_t> steps;
  for (const Point& point : points) steps.push_back(point.step);
  return steps;
}

TEST(ReportSeriesTest, FewPointsAreKeptAsTheyAre) {
  Series series;
  series.add({1, 0.5, 3});
  series.add({2, 1.0, 2});
  EXPECT_THAT(series.points(), ElementsAre(Point{1, 0.5, 3}, Point{2, 1.0, 2}));
}

TEST(ReportSeriesTest, AMillionPointsKeepEveryPeakAndTheNewest) {
  Series series;
  for (int64_t i = 0; i < 1'000'000; ++i) {
    const double value = i == 123'456 ? 100 : i == 777'777 ? -100 : std::sin(1e-3 * i);
    series.add({i, 0.1 * i, value});
  }
  const std::vector<Point> points = series.points();
  EXPECT_EQ(series.count(), 1'000'000);
  EXPECT_THAT(points, SizeIs(Le(2 * Series::kMaxBuckets + 1)));
  EXPECT_GT(points.size(), Series::kMaxBuckets / 2);
  EXPECT_THAT(points, testing::Contains(Point{123'456, 12345.6, 100}));
  EXPECT_THAT(points, testing::Contains(testing::Field(&Point::step, 777'777)));
  EXPECT_EQ(points.back().step, 999'999);
  EXPECT_TRUE(std::ranges::is_sorted(steps_of(points)));
}

TEST(ReportSeriesTest, EveryPartOfTheTimeHasItsShareOfThePoints) {
  Series series;
  for (int64_t i = 0; i < 100'000; ++i) series.add({i, 0, static_cast<double>(i % 7)});
  const std::vector<int64_t> steps = steps_of(series.points());
  const auto middle = std::ranges::lower_bound(steps, 50'000) - steps.begin();
  EXPECT_NEAR(static_cast<double>(middle) / static_cast<double>(steps.size()), 0.5, 0.05);
}

TEST(ReportSeriesTest, ANumberThatIsNotFiniteIsNotThinnedAway) {
  Series series;
  for (int64_t i = 0; i < 50'000; ++i) series.add({i, 0, i == 31'000 ? std::nan("") : 1.0});
  const std::vector<Point> points = series.points(64);
  EXPECT_EQ(std::ranges::count_if(points, [](const Point& p) { return std::isnan(p.value); }), 1);
  EXPECT_THAT(points, SizeIs(Le(3 * 64)));
}

TEST(ReportSeriesTest, GoesOnFromThePointsItGave) {
  Series first;
  for (int64_t i = 0; i < 10'000; ++i) first.add({i, 0, static_cast<double>(i % 100)});
  Series second(first.points(100), first.count());
  for (int64_t i = 10'000; i < 20'000; ++i) second.add({i, 0, static_cast<double>(i % 100)});
  const std::vector<Point> points = second.points();
  EXPECT_EQ(second.count(), 20'000);
  EXPECT_EQ(points.front().step, 0);
  EXPECT_EQ(points.back().step, 19'999);
  const std::vector<int64_t> steps = steps_of(points);
  EXPECT_TRUE(std::ranges::is_sorted(steps));
  const auto old = std::ranges::lower_bound(steps, 10'000) - steps.begin();
  EXPECT_NEAR(static_cast<double>(old) / static_cast<double>(steps.size()), 0.5, 0.2);
}

}  // namespace
}  // namespace tensorpack::report
