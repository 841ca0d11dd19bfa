// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/cache.h"
#include "tensorpack/dataflow/combine.h"
#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/dataflow/fixed_size.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/inspect.h"
#include "tensorpack/dataflow/interleave.h"
#include "tensorpack/dataflow/locally_shuffle.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shard.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/take.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/leftovers.h"

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

FromGenerator drawing() {
  return FromGenerator(
      [](int64_t pass, Rng& rng) -> Generator<DataPoint> {
        for (int64_t i = 0; i < 5; ++i) {
          DataPoint point{torch::full({2}, 10 * pass + static_cast<int64_t>(rng.below(1000))),
                          torch::rand({2})};
          co_yield point;
        }
      },
      {.seed = 1});
}

// Makes a shuffled flow in each pass.
FromGenerator shuffling() {
  return FromGenerator(
      []() -> Generator<DataPoint> {
        const DataFlowPtr flow = numbers(20) | shuffle();
        while (auto point = flow->next()) co_yield *point;
      },
      {.seed = 1});
}

DataPoint add_noise(DataPoint point) { return {point[0] + torch::rand({3}), torch::randn({3})}; }

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
                                         Case{"DrawingGenerator", [] { return own(drawing()); }},
                                         Case{"ShufflingGenerator",
                                              [] { return own(shuffling()); }},
                                         Case{"FakeData", [] { return own(fake(true)); }},
                                         Case{"LargeFakeData", [] { return own(fake(true, 180)); }},
                                         Case{"ConstantFakeData", [] { return own(fake(false)); }}),
                         [](const auto& info) { return info.param.name; });

DataPoint jitter(DataPoint point, Rng& rng) {
  return {point[0] * 100 + static_cast<int64_t>(rng.below(100))};
}

DataFlowPtr open(const DataPoint& point) { return numbers(point[0].item<int64_t>()) | take(100); }

DataFlowPtr open_shuffled(const DataPoint& /*point*/) { return numbers(9) | shuffle(); }

int64_t parity(const DataPoint& point) { return point[0].item<int64_t>() % 2; }

// Their threads come and go with passes: nothing of them may stay.
class ThreadsContractTest : public testing::TestWithParam<Case> {};

TEST_P(ThreadsContractTest, ManyStartsAndStopsLeaveNothingBehind) {
  const Leftovers leftovers;
  for (int64_t i = 0; i < 150; ++i) {
    const auto flow = GetParam().make();
    for (int64_t pass = 0; pass < 5; ++pass) {
      flow->start(pass);
      collect(*flow, (i + pass) % 6);
    }
  }
  leftovers.expect_none();
}

std::vector<Case> stages_with_threads() {
  return {Case{"Prefetch", [] { return numbers(9) | shuffle({.seed = 1}) | prefetch(3); }},
          Case{"PrefetchOfOne", [] { return numbers(9) | prefetch(1); }},
          Case{"PrefetchForever", [] { return numbers(4) | repeat() | prefetch(3); }},
          Case{"ParallelMap", [] { return numbers(9) | parallel_map(add_one, {.threads = 3}); }},
          Case{"ParallelMapThatDrops",
               [] { return numbers(9) | parallel_map(keep_even, {.threads = 3}); }},
          Case{"RandomParallelMap",
               [] { return numbers(9) | parallel_map(jitter, {.threads = 3, .seed = 1}); }},
          Case{"MapAndBatch",
               [] { return numbers(10) | map_and_batch(jitter, 3, {.threads = 3, .seed = 1}); }},
          Case{"MapAndBatchWithRemainder",
               [] {
                 return numbers(10) | map_and_batch(add_one, 3, {.threads = 3, .remainder = true});
               }},
          Case{"MapAndBatchThatDrops",
               [] { return numbers(10) | map_and_batch(keep_even, 2, {.threads = 3}); }},
          Case{"NoisyParallelMap",
               [] { return numbers(9) | parallel_map(add_noise, {.threads = 3, .seed = 1}); }},
          Case{"InterleaveOfShuffled",
               [] {
                 set_global_seed(3);  // there is no other
                 return numbers(6) | interleave(open_shuffled, {.cycle = 2});
               }},
          Case{"Interleave", [] { return numbers(6) | interleave(open, {.cycle = 2}); }},
          Case{"InterleaveWithoutThreads",
               [] { return numbers(6) | interleave(open, {.cycle = 3, .prefetch = 0}); }},
          Case{"Copies",
               [] {
                 return run_multiple_copies(
                     [](int64_t copy) { return numbers(5) | shuffle({.seed = copy}); });
               }},
          Case{"Nested",
               [] {
                 return numbers(20) | prefetch(2) |
                        parallel_map(jitter, {.threads = 2, .seed = 1}) | prefetch(3) |
                        map_and_batch(add_one, 4, {.threads = 2}) | prefetch(1);
               }},
          Case{"FillBatch", [] {
                 const auto fill = [](DataPoint point, Rng& rng, const at::Tensor& row) {
                   row.fill_(point[0] + static_cast<int64_t>(rng.below(100)));
                   return point;
                 };
                 return numbers(10) | fill_batch({.shape = {2}, .dtype = torch::kLong}, fill, 3,
                                                 {.threads = 3, .seed = 1});
               }}};
}

INSTANTIATE_TEST_SUITE_P(Threads, DataFlowContractTest, testing::ValuesIn(stages_with_threads()),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(Threads, ThreadsContractTest, testing::ValuesIn(stages_with_threads()),
                         [](const auto& info) { return info.param.name; });

INSTANTIATE_TEST_SUITE_P(
    MoreStages, DataFlowContractTest,
    testing::Values(
        Case{"BatchByKey", [] { return numbers(11) | batch_by_key(2, parity); }},
        Case{"BatchByKeyWithRemainder",
             [] { return numbers(11) | batch_by_key(4, parity, {.remainder = true}); }},
        Case{"PaddedBatch", [] { return numbers(11) | batch(3, {.padding = 0}); }},
        Case{"NoisyMap", [] { return numbers(9) | map(add_noise, {.seed = 1}); }},
        Case{"RandomMap", [] { return numbers(9) | map(jitter, {.seed = 1}); }},
        Case{"RepeatEach", [] { return numbers(5) | repeat_each(3); }},
        Case{"FixedSize", [] { return numbers(5) | shuffle({.seed = 1}) | fixed_size(7); }},
        Case{"FixedSizeOfUnknown", [] { return counting() | fixed_size(7); }},
        Case{"FixedSizeAnew", [] { return numbers(5) | fixed_size(7, {.keep_position = false}); }},
        Case{"Concat",
             [] {
               return concat({numbers(4) | shuffle({.seed = 1}), counting(), numbers(0)});
             }},
        Case{"Join",
             [] {
               return join({numbers(6), numbers(6) | shuffle({.seed = 1})});
             }},
        Case{"JoinOfShortest",
             [] {
               return join({numbers(4), counting()}, {.shortest = true});
             }},
        Case{"RandomChoose",
             [] {
               return random_choose({numbers(9), counting()}, {.seed = 1});
             }},
        Case{"RandomMix",
             [] {
               return random_mix({numbers(9), numbers(4)}, {.seed = 1});
             }},
        Case{"LocallyShuffle",
             [] { return numbers(9) | locally_shuffle(4, {.reuse = 2, .seed = 1}); }},
        Case{"Cache", [] { return numbers(9) | cache({.shuffle = true, .seed = 1}); }},
        Case{"CacheOfUnknownSize", [] { return counting() | cache(); }},
        Case{"Print", [] { return numbers(4) | print({.count = 0}); }}),
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
