// SPDX-License-Identifier: Apache-2.0
// Stages with threads. What they share with all others is in the contract.

#include <atomic>
#include <latch>
#include <set>
#include <thread>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/interleave.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/take.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/matchers.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/thread_limit.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::UnorderedElementsAreArray;

int64_t value_of(const DataPoint& point) { return point[0].item<int64_t>(); }

DataPoint times_ten(DataPoint point) { return {point[0] * 10}; }

// Some datapoints take longer than others, so that threads overtake each other.
DataPoint uneven(DataPoint point) {
  if (value_of(point) % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  return {point[0] * 10};
}

TEST(ParallelStagesTest, AThreadThatCannotBeStartedIsAnError) {
  const ThreadLimit limit(0);
  EXPECT_ERROR((numbers(3) | prefetch(2))->next(), "it cannot be started: ");
}

DataPoint fail_at_three(DataPoint point) {
  if (value_of(point) == 3) throw std::out_of_range("bad file");
  return point;
}

std::vector<int64_t> range(int64_t count, int64_t factor = 1) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(i * factor);
  return result;
}

// Rows of the batch are left, and threads have begun them.
TEST(MapAndBatchTest, SkipsFromTheEndOfAFailedBatch) {
  const auto flow = numbers(16) | map_and_batch(fail_at_three, 8, {.threads = 2});
  EXPECT_ERROR(flow->next(), "bad file");
  EXPECT_EQ(flow->skip(1), 1);
  EXPECT_FALSE(flow->next());
  flow->start(1);
  EXPECT_ERROR(flow->next(), "bad file");
  flow->start(2);
  EXPECT_ERROR(flow->next(), "bad file") << "the next pass begins with its first batch";
  EXPECT_TRUE(at::equal(flow->next()->at(0).flatten(), at::arange(8, 16)));
}

TEST(PrefetchTest, WorksAheadUpToItsCapacityAndNoFurther) {
  std::atomic<int64_t> made = 0;
  const auto flow = numbers(100) | map([&](DataPoint p) {
                      ++made;
                      return p;
                    }) |
                    prefetch(8);
  EXPECT_EQ(made, 0) << "nothing is read before it is asked for";
  flow->next();
  while (made < 8) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_LE(made, 9) << "one was handed out";
}

TEST(PrefetchTest, RunsTheFlowOnOneOtherThread) {
  std::set<std::thread::id> threads;
  const auto flow = numbers(20) | map([&](DataPoint p) {
                      threads.insert(std::this_thread::get_id());
                      return p;
                    }) |
                    prefetch(4);
  EXPECT_THAT(values(*flow), SizeIs(20));
  EXPECT_THAT(threads, SizeIs(1));
  EXPECT_FALSE(threads.contains(std::this_thread::get_id()));
}

TEST(PrefetchTest, FailureComesAfterTheDatapointsBeforeItAndKeepsItsType) {
  const auto flow = numbers(5) | map(fail_at_three) | prefetch(8);
  EXPECT_THAT(values(*(numbers(3) | prefetch(8))), ElementsAre(0, 1, 2));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(flow->next());
  try {
    flow->next();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[map] datapoint 3 of the pass: bad file");
    EXPECT_THROW(std::rethrow_if_nested(error), std::out_of_range);
  }
  EXPECT_FALSE(flow->next());
  flow->start(1);
  EXPECT_EQ(value_of(*flow->next()), 0) << "a new pass begins anew";
}

TEST(PrefetchTest, WhatEndsATrainingIsNotWrapped) {
  const auto flow =
      numbers(5) | map([](DataPoint) -> DataPoint { throw EndOfData("enough"); }) | prefetch(2);
  EXPECT_THROW(flow->next(), EndOfData);
}

TEST(PrefetchTest, CapacityMustBePositive) { EXPECT_ERROR(numbers(3) | prefetch(0), "got 0"); }

TEST(ParallelMapTest, OrderedIsTheSameWhateverTheNumberOfThreads) {
  for (const int64_t threads : {1, 2, 3, 7}) {
    for (const int64_t capacity : {1, 2, 16}) {
      const auto flow =
          numbers(60) | parallel_map(uneven, {.threads = threads, .capacity = capacity});
      EXPECT_EQ(flow->size(), 60);
      EXPECT_EQ(values(*flow), range(60, 10)) << threads << " threads, capacity " << capacity;
    }
  }
}

TEST(ParallelMapTest, UnorderedHasEverythingOnce) {
  const auto flow = numbers(60) | parallel_map(uneven, {.threads = 4, .ordered = false});
  EXPECT_THAT(values(*flow), UnorderedElementsAreArray(range(60, 10)));
  EXPECT_THAT(values_of_pass(*flow, 1), UnorderedElementsAreArray(range(60, 10)));
}

TEST(ParallelMapTest, UnorderedDoesNotWaitForTheSlowOne) {
  std::atomic<bool> may_end = false;
  const auto flow = numbers(6) | parallel_map(
                                     [&](DataPoint p) {
                                       while (value_of(p) == 0 && !may_end)
                                         std::this_thread::yield();
                                       return p;
                                     },
                                     {.threads = 2, .capacity = 8, .ordered = false});
  std::vector<int64_t> seen;
  for (int i = 0; i < 5; ++i) seen.push_back(value_of(*flow->next()));
  EXPECT_THAT(seen, UnorderedElementsAreArray({1, 2, 3, 4, 5}));
  may_end = true;
  EXPECT_EQ(value_of(*flow->next()), 0);
  EXPECT_FALSE(flow->next());
}

TEST(ParallelMapTest, DropsInOrder) {
  const auto flow = numbers(20) | parallel_map(
                                      [](DataPoint p) -> std::optional<DataPoint> {
                                        if (value_of(p) % 4 != 0) return std::nullopt;
                                        return p;
                                      },
                                      {.threads = 3});
  EXPECT_FALSE(flow->size());
  EXPECT_THAT(values(*flow), ElementsAre(0, 4, 8, 12, 16));
}

TEST(ParallelMapTest, FailureTakesThePlaceOfItsDatapointAndThePassGoesOn) {
  const auto flow = numbers(6) | parallel_map(fail_at_three, {.threads = 3});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(value_of(*flow->next()), i);
  EXPECT_THAT([&] { flow->next(); },
              ThrowsMessage<Error>("[parallel_map] datapoint 3 of the pass: bad file"));
  EXPECT_THAT(values(*flow), ElementsAre(4, 5));
}

TEST(ParallelMapTest, SkippedFailuresAreLeftOut) {
  const auto flow =
      numbers(6) | parallel_map(fail_at_three, {.threads = 3, .on_error = OnError::kSkip});
  EXPECT_FALSE(flow->size());
  EXPECT_THAT(values(*flow), ElementsAre(0, 1, 2, 4, 5));
}

TEST(ParallelMapTest, RandomNumbersBelongToDatapoints) {
  const auto draw = [](DataPoint p, Rng& rng) {
    return DataPoint{p[0] * 1000 + static_cast<int64_t>(rng.below(1000))};
  };
  const auto serial = numbers(40) | map(draw, {.seed = 5});
  const auto parallel = numbers(40) | parallel_map(draw, {.threads = 3, .seed = 5});
  for (const int64_t pass : {0, 1}) {
    EXPECT_EQ(values_of_pass(*serial, pass), values_of_pass(*parallel, pass));
  }
  EXPECT_NE(values_of_pass(*serial, 0), values_of_pass(*serial, 1));
  const auto whole = values_of_pass(*serial, 1);
  parallel->start(1);
  EXPECT_EQ(parallel->skip(30), 30);
  EXPECT_EQ(values(*parallel), std::vector(whole.begin() + 30, whole.end()));
}

// Of every kind, while another thread draws from libtorch's default generator.
TEST(ParallelMapTest, OperatorsDrawForTheirDatapointWhateverTheThreads) {
  const auto draw = [](DataPoint p) {
    const at::Tensor x = torch::rand({2}) + torch::randn_like(torch::ones({2}));
    return DataPoint{p[0], x, torch::dropout(x, 0.5, true), torch::randperm(9)};
  };
  const auto serial = collect(*(numbers(40) | map(draw, {.seed = 5})));
  torch::manual_seed(1);
  const at::Tensor untouched = torch::rand({100});
  torch::manual_seed(1);
  std::vector<at::Tensor> drawn_here;
  for (const int64_t threads : {1, 4}) {
    const auto flow = numbers(40) | parallel_map(draw, {.threads = threads, .seed = 5});
    for (const DataPoint& expected : serial) {
      EXPECT_TRUE(same(*flow->next(), expected));
      if (std::ssize(drawn_here) < 100) drawn_here.push_back(torch::rand({}));
    }
    flow->start(0);
    flow->skip(30);
    EXPECT_TRUE(same(*flow->next(), serial[30]));
  }
  EXPECT_TRUE(torch::equal(torch::stack(drawn_here), untouched.narrow(0, 0, 80)));
  EXPECT_FALSE(same(serial[0], serial[1]));
}

TEST(ParallelMapTest, SkippedDatapointsAreNotMade) {
  std::atomic<int64_t> made = 0;
  const auto flow = numbers(100) | parallel_map(
                                       [&](DataPoint p) {
                                         ++made;
                                         return p;
                                       },
                                       {.threads = 2, .capacity = 2});
  EXPECT_EQ(flow->skip(90), 90);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(value_of(*flow->next()), 90);
}

TEST(MapAndBatchTest, IsMapAndBatch) {
  for (const bool remainder : {false, true}) {
    const auto expected = numbers(23) | map(times_ten) | batch(4, {.remainder = remainder});
    const auto flow =
        numbers(23) | map_and_batch(uneven, 4, {.threads = 3, .remainder = remainder});
    EXPECT_EQ(flow->size(), expected->size());
    EXPECT_TRUE(same(collect(*flow), collect(*expected)));
    EXPECT_FALSE(flow->next());
  }
}

TEST(MapAndBatchTest, OneBatchIsMadeBySeveralThreads) {
  std::latch all(4);  // each datapoint waits for the others
  const auto flow = numbers(4) | map_and_batch(
                                     [&](DataPoint p) {
                                       all.arrive_and_wait();
                                       return p;
                                     },
                                     4, {.threads = 4});
  EXPECT_TRUE(flow->next());
}

TEST(MapAndBatchTest, AFailureCostsItsBatchAlone) {
  const auto flow = numbers(8) | map_and_batch(fail_at_three, 2, {.threads = 3});
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({0, 1})}));
  EXPECT_THAT([&] { flow->next(); },
              ThrowsMessage<Error>("[map_and_batch] datapoint 3 of the pass: bad file"));
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({4, 5})}));
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({6, 7})}));
  EXPECT_FALSE(flow->next());
}

TEST(MapAndBatchTest, DroppedAndSkippedLeaveNoGaps) {
  const auto flow =
      numbers(7) | map_and_batch(fail_at_three, 3, {.threads = 3, .on_error = OnError::kSkip});
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({0, 1, 2})}));
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({4, 5, 6})}));
  EXPECT_FALSE(flow->next());
}

TEST(MapAndBatchTest, UnequalShapesNameBothDatapoints) {
  const auto flow =
      numbers(4) |
      map_and_batch([](DataPoint p) { return DataPoint{torch::ones({1 + value_of(p) / 3})}; }, 4,
                    {.threads = 1});
  EXPECT_THAT([&] { flow->next(); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("shape [1] in datapoint 0"), HasSubstr("[2] in datapoint 3"))));
}

TEST(MapAndBatchTest, FailureOfTheFlowEndsThePass) {
  const auto flow = FromGenerator([]() -> Generator<DataPoint> {
                      for (int64_t i = 0; i < 3; ++i) co_yield datapoint(torch::tensor(i));
                      throw std::runtime_error("disk");
                    }) |
                    map_and_batch(times_ten, 2, {.threads = 2, .remainder = true});
  EXPECT_TRUE(same(*flow->next(), {torch::tensor({0, 10})}));
  EXPECT_THAT([&] { flow->next(); },
              ThrowsMessage<Error>("[map_and_batch] reading datapoint 3 of the pass: disk"));
  EXPECT_FALSE(flow->next());
  EXPECT_FALSE(flow->next());
}

TEST(InterleaveTest, TakesTurnsAndOpensTheNextWhereOneEnds) {
  const auto tens = [](const DataPoint& p) -> DataFlowPtr {
    return numbers(value_of(p) + 1) |
           map([base = 10 * value_of(p)](DataPoint q) { return DataPoint{q[0] + base}; });
  };
  for (const int64_t ahead : {0, 4}) {
    const auto flow = numbers(4) | interleave(tens, {.cycle = 2, .prefetch = ahead});
    EXPECT_THAT(values(*flow), ElementsAre(0, 10, 20, 11, 21, 30, 22, 31, 32, 33));
    EXPECT_THAT(values_of_pass(*flow, 1), SizeIs(10));
  }
}

TEST(CopiesTest, TakesADatapointOfEachInTurn) {
  const auto make = [](int64_t copy) -> DataFlowPtr {
    return numbers(copy + 2) |
           map([base = 10 * copy](DataPoint p) { return DataPoint{p[0] + base}; });
  };
  const auto flow = run_multiple_copies(make, {.copies = 3});
  EXPECT_EQ(flow->size(), 9);
  EXPECT_THAT(values(*flow), ElementsAre(0, 10, 20, 1, 11, 21, 12, 22, 23));
}

// An endless flow behind one that waits for it: each must be woken up.
TEST(WorkAheadTest, NestedStagesEndWhileTheyWait) {
  for (int i = 0; i < 20; ++i) {
    const auto flow = numbers(5) | repeat() | prefetch(2) |
                      parallel_map(times_ten, {.threads = 2, .capacity = 3}) | prefetch(1);
    for (int n = 0; n < i; ++n) flow->next();
  }
}

TEST(WorkAheadTest, TheSequenceIsTheSameWithAndWithoutThreads) {
  const auto random = [](DataPoint p, Rng& rng) {
    return DataPoint{p[0] + static_cast<int64_t>(rng.below(100))};
  };
  const auto plain = numbers(50) | shuffle(10, {.seed = 1}) | map(random, {.seed = 2}) | batch(4);
  const auto threaded = numbers(50) | shuffle(10, {.seed = 1}) | prefetch(5) |
                        map_and_batch(random, 4, {.threads = 3, .seed = 2}) | prefetch(2);
  for (const int64_t pass : {0, 3}) {
    EXPECT_EQ(values_of_pass(*plain, pass), values_of_pass(*threaded, pass));
  }
}

}  // namespace
}  // namespace tensorpack::test
