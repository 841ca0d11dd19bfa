// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(FromGeneratorTest, YieldsWhatTheCoroutineYieldsEachPass) {
  auto flow = FromGenerator([]() -> Generator<DataPoint> {
    for (int64_t i = 0; i < 3; ++i) {
      DataPoint point{torch::scalar_tensor(i)};
      co_yield point;
    }
  });
  EXPECT_FALSE(flow.size());
  EXPECT_THAT(values(flow), ElementsAre(0, 1, 2));
  EXPECT_THAT(values(flow), ElementsAre());
  EXPECT_THAT(values_of_pass(flow, 1), ElementsAre(0, 1, 2));
}

TEST(FromGeneratorTest, TakesTemporariesAndCaptures) {
  const auto flow =
      FromGenerator([words = std::vector<int64_t>{4, 5, 6}](int64_t pass) -> Generator<DataPoint> {
        for (const int64_t word : words) {
          co_yield std::vector<at::Tensor>(1, torch::scalar_tensor(10 * pass + word));
        }
      }) |
      batch(3);
  EXPECT_THAT(values_of_pass(*flow, 2), ElementsAre(24, 25, 26));
}

TEST(FromGeneratorTest, YieldsSeveralTensorsOnTheSpot) {
  auto flow = FromGenerator([]() -> Generator<DataPoint> {
    const at::Tensor image = torch::zeros({2});
    co_yield datapoint(image, torch::scalar_tensor(7));
  });
  const std::optional<DataPoint> point = flow.next();
  ASSERT_TRUE(point);
  ASSERT_EQ(point->size(), 2U);
  EXPECT_EQ((*point)[1].item<int64_t>(), 7);
}

TEST(FromGeneratorTest, ExceptionReachesTheConsumerAfterTheDatapointsBeforeIt) {
  auto flow = FromGenerator([]() -> Generator<DataPoint> {
    DataPoint point{torch::scalar_tensor(1)};
    co_yield point;
    throw std::out_of_range("line 2");
  });
  EXPECT_TRUE(flow.next());
  EXPECT_THROW(flow.next(), std::out_of_range);
  EXPECT_FALSE(flow.next());
  flow.start(0);
  EXPECT_TRUE(flow.next());
}

TEST(FromGeneratorTest, DestroyingItRunsTheDestructorsInTheCoroutine) {
  const auto witness = std::make_shared<int>(0);
  {
    auto flow = FromGenerator([witness]() -> Generator<DataPoint> {
      const auto local = witness;
      while (true) {
        DataPoint point{torch::ones({1})};
        co_yield point;
      }
    });
    flow.next();
    EXPECT_EQ(witness.use_count(), 3);
  }
  EXPECT_EQ(witness.use_count(), 1);
}

TEST(FakeDataTest, DrawsFromTheRangeWithTheTypeAsked) {
  auto flow = FakeData(
      {{.shape = {100}, .low = 2, .high = 3}, {.shape = {100}, .dtype = torch::kByte, .high = 4}},
      {.size = 3, .seed = 1});
  EXPECT_EQ(flow.size(), 3);
  const auto point = *flow.next();
  EXPECT_GE(point[0].min().item<float>(), 2);
  EXPECT_LT(point[0].max().item<float>(), 3);
  EXPECT_EQ(point[1].scalar_type(), torch::kByte);
  EXPECT_EQ(point[1].max().item<int>(), 3);
  EXPECT_FALSE(same(*flow.next(), point));
}

TEST(FakeDataTest, NotRandomYieldsTheSameDatapoint) {
  auto flow = FakeData({{.shape = {4}}}, {.random = false});
  EXPECT_TRUE(same(*flow.next(), *flow.next()));
  EXPECT_EQ(flow.size(), 1000);
}

TEST(FakeDataTest, EmptyRangeIsAnError) {
  EXPECT_THAT([] { FakeData({{.low = 1, .high = 1}}); }, ThrowsMessage<Error>(HasSubstr("1..1")));
}

TEST(SeedTest, GlobalSeedMakesFlowsReproducibleAndDifferent) {
  const auto draw_two = [] {
    set_global_seed(42);
    auto a = FakeData({{.shape = {4}}});
    auto b = FakeData({{.shape = {4}}});
    return std::pair(*a.next(), *b.next());
  };
  const auto first = draw_two();
  const auto second = draw_two();
  EXPECT_EQ(global_seed(), 42);
  EXPECT_TRUE(same(first.first, second.first));
  EXPECT_TRUE(same(first.second, second.second));
  EXPECT_FALSE(same(first.first, first.second));
}

TEST(RngTest, BelowIsUniform) {
  Rng rng(3, 0);
  std::vector<int> counts(5);
  for (int i = 0; i < 50000; ++i) ++counts[rng.below(5)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

TEST(RngTest, SeedsAndPassesDoNotMeet) {
  EXPECT_NE(Rng(0, 1)(), Rng(1, 0)());
  EXPECT_NE(Rng(0, 0)(), Rng(0, 1)());
  Rng a(5, 0);
  a();
  EXPECT_NE(a(), Rng(5, 1)()) << "pass 1 must not be pass 0 shifted by one";
}

}  // namespace
}  // namespace tensorpack::test
