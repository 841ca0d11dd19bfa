// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shard.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/take.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

FromGenerator counting() {
  return FromGenerator([limit = 5](int64_t pass) -> Generator<DataPoint> {
    for (int64_t i = 0; i < limit; ++i) {
      DataPoint point{torch::full({2}, 10 * pass + i)};
      co_yield point;
    }
  });
}

FakeData fake(bool random, int64_t size = 6) {
  return FakeData({{.shape = {3}}, {.dtype = torch::kLong, .high = 10}},
                  {.size = size, .random = random, .seed = 7});
}

DataPoint add_one(DataPoint point) { return {point[0] + 1}; }

std::optional<DataPoint> keep_even(DataPoint point) {
  if (point[0].item<int64_t>() % 2 == 1) return std::nullopt;
  return point;
}

template <typename Flow>
DataFlowPtr own(Flow flow) {
  return std::make_unique<Flow>(std::move(flow));
}

struct Case {
  std::string name;
  MakeDataFlow make;
};

class DataFlowContractTest : public testing::TestWithParam<Case> {};

TEST_P(DataFlowContractTest, PassesRepeat) { expect_passes_repeat(GetParam().make); }
TEST_P(DataFlowContractTest, RestartsInMidPass) { expect_restarts_in_mid_pass(GetParam().make); }
TEST_P(DataFlowContractTest, SizeIsTrue) { expect_true_size(GetParam().make); }
TEST_P(DataFlowContractTest, SkipsAsIfRead) { expect_skips_as_if_read(GetParam().make); }
TEST_P(DataFlowContractTest, IsDestroyedCleanly) { expect_destroyed_cleanly(GetParam().make); }

INSTANTIATE_TEST_SUITE_P(Sources, DataFlowContractTest,
                         testing::Values(Case{"FromList", [] { return own(numbers(7)); }},
                                         Case{"FromGenerator", [] { return own(counting()); }},
                                         Case{"FakeData", [] { return own(fake(true)); }},
                                         Case{"LargeFakeData", [] { return own(fake(true, 180)); }},
                                         Case{"ConstantFakeData", [] { return own(fake(false)); }}),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Stages, DataFlowContractTest,
    testing::Values(
        Case{"Batch", [] { return numbers(7) | batch(3); }},
        Case{"BatchRemainder", [] { return numbers(7) | batch(3, {.remainder = true}); }},
        Case{"Shuffle", [] { return numbers(9) | shuffle({.seed = 1}); }},
        Case{"ShuffleBuffer", [] { return numbers(9) | shuffle(4, {.seed = 1}); }},
        Case{"LongShuffleBuffer", [] { return numbers(180) | shuffle(20, {.seed = 1}); }},
        Case{"ShuffleOfUnknownSize", [] { return counting() | shuffle(3, {.seed = 1}); }},
        Case{"Repeat", [] { return numbers(4) | shuffle({.seed = 1}) | repeat(3); }},
        Case{"RepeatOfUnknownSize", [] { return counting() | repeat(3); }},
        Case{"RepeatForever", [] { return numbers(4) | shuffle({.seed = 1}) | repeat(); }},
        Case{"Map", [] { return numbers(4) | map(add_one); }},
        Case{"MapThatDrops", [] { return numbers(5) | map(keep_even); }},
        Case{"Take", [] { return numbers(9) | take(4); }},
        Case{"TakeMoreThanThereIs", [] { return numbers(3) | take(4); }},
        Case{"Shard", [] { return numbers(11) | shard({.rank = 1, .size = 3}); }},
        Case{"UnequalShard",
             [] { return numbers(11) | shard({.rank = 1, .size = 3, .equal = false}); }},
        Case{"Pipeline",
             [] {
               return counting() | map(add_one) | repeat(2) | shuffle(4, {.seed = 3}) |
                      batch(3, {.remainder = true});
             }}),
    [](const auto& info) { return info.param.name; });

TEST(DataFlowValueTest, SourcesCanBeMovedInMidPass) {
  expect_movable(numbers(7));
  expect_movable(counting());
  expect_movable(fake(true));
}

}  // namespace
}  // namespace tensorpack::test
