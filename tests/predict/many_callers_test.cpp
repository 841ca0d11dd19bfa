// SPDX-License-Identifier: Apache-2.0
// Predictions at the same time, and for several callers or datapoints together.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <mutex>
#include <thread>

#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/predict/async_predictor.h"
#include "tensorpack/predict/data_parallel_predictor.h"
#include "tensorpack/predict/dataset_predictor.h"
#include "tensorpack/predict/feedfree_predictor.h"
#include "tensorpack/predict/multi_tower_predictor.h"
#include "tests/support/thread_limit.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

using Tensors = std::vector<at::Tensor>;

// y = 3x, and their sum over the features.
PredictConfig config() {
  return {
      .inputs = {{"x", {-1, 2}}},
      .tower_func =
          [](const at::Tensor& x) {
            const at::Tensor y = named("y", get_variable("w", {}) * x);
            named("sum", y.sum(1));
          },
      .session_init = DictRestore({{"w", at::full({}, 3.0F)}}),
      .output_names = {"y", "sum"},
  };
}

TEST(OfflinePredictorTest, CopiesShareTheModelAndOutliveTheOriginal) {
  auto original = std::make_unique<OfflinePredictor>(config());
  OfflinePredictor copy = *original;
  EXPECT_EQ(&copy.graph(), &original->graph());
  original.reset();
  EXPECT_TRUE(at::equal(copy(at::ones({1, 2}))[0], at::full({1, 2}, 3.0F)));
}

TEST(OfflinePredictorTest, ManyThreadsMayCallOne) {
  const OfflinePredictor predict(config());
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  std::latch start(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      for (int64_t k = 0; k < 50; ++k) {
        const at::Tensor x = at::full({1 + k % 3, 2}, static_cast<float>(100 * i + k));
        right += at::equal(predict(x)[0], 3 * x) ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right, 4 * 50);
}

// Preparing an op calls its function, which waits for the predictor here; others prepare and run
// that at the same time.
TEST(OfflinePredictorTest, ATowerFunctionMayAskOneThatOtherThreadsAsk) {
  const OfflinePredictor teacher(config());
  const OfflinePredictor student({
      .inputs = {{"x", {-1, 2}}},
      .tower_func = [&](const at::Tensor& x) { named("more", teacher(x)[0] + 1); },
      .output_names = {"more"},
  });
  std::atomic<int> right = 0;
  constexpr int kSizes = 20, kRounds = 4;
  const auto ask = [&](const OfflinePredictor& predict, float offset) {
    for (int i = 0; i < kRounds * kSizes; ++i) {
      const at::Tensor x = at::full({1 + i % kSizes, 2}, static_cast<float>(i));
      right += at::equal(predict(x)[0], 3 * x + offset) ? 1 : 0;
    }
  };
  {
    const std::jthread first([&] { ask(teacher, 0); });
    const std::jthread second([&] { ask(teacher, 0); });
    ask(student, 1);
  }
  EXPECT_EQ(right, 3 * kRounds * kSizes);
}

TEST(MultiTowerOfflinePredictorTest, TowersOfOneDeviceShareTheirVariables) {
  const MultiTowerOfflinePredictor towers(config(), Devices::cpu(3));
  ASSERT_EQ(towers.size(), 3);
  OfflinePredictor last = towers[2];
  EXPECT_EQ(last.graph().variables().trainable().size(), 1);
  EXPECT_TRUE(at::equal(towers(at::ones({1, 2}))[1], at::full({1}, 6.0F)));
}

TEST(MultiTowerOfflinePredictorTest, ATowerThatIsNotThereIsAnError) {
  const MultiTowerOfflinePredictor predict(config(), Devices::cpu(2));
  EXPECT_ERROR(predict[2],
               "[MultiTowerOfflinePredictor] there is no tower 2: there are 2. Count from 0.");
}

TEST(MultiTowerOfflinePredictorTest, TowersRunAtTheSameTime) {
  const MultiTowerOfflinePredictor towers(config(), Devices::cpu(4));
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  std::latch start(4);
  for (size_t i = 0; i < towers.size(); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      for (int64_t k = 0; k < 50; ++k) {
        const at::Tensor x = at::full({1 + k % 3, 2}, static_cast<float>(k));
        right += at::equal(towers[i](x)[0], 3 * x) ? 1 : 0;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(right, 4 * 50);
}

TEST(MultiThreadAsyncPredictorTest, EveryCallerGetsItsOwnRow) {
  MultiThreadAsyncPredictor predict(
      MultiTowerOfflinePredictor(config(), Devices::cpu(2)).predictors(), {.batch_size = 5});
  std::vector<std::jthread> callers;
  std::atomic<int> right = 0;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&, c] {
      std::vector<PredictionFuture> results;
      for (int i = 0; i < 25; ++i) {
        results.push_back(predict.put_task({at::full({2}, static_cast<float>(100 * c + i))}));
      }
      for (int i = 0; i < 25; ++i) {
        const auto value = static_cast<float>(100 * c + i);
        const Tensors row = results[static_cast<size_t>(i)].get();
        right += at::equal(row[0], at::full({2}, 3 * value)) && row[1].item<float>() == 6 * value;
      }
    });
  }
  callers.clear();
  EXPECT_EQ(right, 4 * 25);
}

TEST(MultiThreadAsyncPredictorTest, OneThatWasMovedFromIsAnErrorToUse) {
  MultiThreadAsyncPredictor from(
      {MultiThreadAsyncPredictor::Predictor([](const Tensors& inputs) { return inputs; })});
  MultiThreadAsyncPredictor to = std::move(from);
  EXPECT_ERROR(from.put_task({at::ones({2})}),  // NOLINT(bugprone-use-after-move)
               "it was moved from, and has no threads");
  EXPECT_TRUE(at::equal(to.put_task({at::ones({2})}).get()[0], at::ones({2})));
}

TEST(PredictionFutureTest, GivesItsOutputsOnce) {
  std::latch may_go_on(1);
  MultiThreadAsyncPredictor predict({MultiThreadAsyncPredictor::Predictor(
      [&may_go_on](const Tensors& inputs) { return may_go_on.wait(), inputs; })});
  PredictionFuture future = predict.put_task({at::ones({2})});
  EXPECT_FALSE(future.wait_for(std::chrono::microseconds(1)));
  may_go_on.count_down();
  future.wait();
  EXPECT_TRUE(future.wait_for(std::chrono::microseconds(0)));
  PredictionFuture moved = std::move(future);
  EXPECT_FALSE(future.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(at::equal(moved.get()[0], at::ones({2})));
  EXPECT_FALSE(moved.valid());
  EXPECT_ERROR(moved.get(), "[PredictionFuture] there are no outputs to wait for");
  EXPECT_ERROR(PredictionFuture().wait(), "[PredictionFuture] there are no outputs to wait for");
}

// A predictor that waits for the test, and notes the sizes of its batches.
struct HeldUp {
  std::vector<int64_t> sizes = {};
  std::latch first_has_come{1};
  std::latch may_go_on{1};

  MultiThreadAsyncPredictor::Predictor predictor() {
    return [this](const Tensors& inputs) -> Tensors {
      sizes.push_back(inputs[0].size(0));
      if (sizes.size() == 1) {
        first_has_come.count_down();
        may_go_on.wait();
      }
      return {inputs[0] * 2};
    };
  }
};

std::vector<int64_t> sizes_of_batches(AsyncPredictorOptions options, int tasks) {
  HeldUp held_up;
  std::vector<PredictionFuture> results;
  {
    MultiThreadAsyncPredictor predict(
        std::vector<MultiThreadAsyncPredictor::Predictor>{held_up.predictor()}, options);
    results.push_back(predict.put_task({at::zeros({1})}));
    held_up.first_has_come.wait();
    for (int i = 1; i < tasks; ++i) {
      results.push_back(predict.put_task({at::full({1}, static_cast<float>(i))}));
    }
    held_up.may_go_on.count_down();
  }  // its end computes what was asked for
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].get()[0].item<float>(), 2.0F * static_cast<float>(i));
  }
  return held_up.sizes;
}

TEST(MultiThreadAsyncPredictorTest, WhatWaitsIsComputedTogether) {
  EXPECT_THAT(sizes_of_batches({.batch_size = 4, .pad = false}, 1 + 7), ElementsAre(1, 4, 3));
}

TEST(MultiThreadAsyncPredictorTest, BatchesAreFilledUpToPowersOfTwo) {
  EXPECT_THAT(sizes_of_batches({.batch_size = 16}, 1 + 5), ElementsAre(1, 8));
}

TEST(MultiThreadAsyncPredictorTest, DatapointsOfOtherShapesAreComputedApart) {
  HeldUp held_up;
  std::vector<PredictionFuture> results;
  {
    MultiThreadAsyncPredictor predict(
        std::vector<MultiThreadAsyncPredictor::Predictor>{held_up.predictor()}, {.pad = false});
    results.push_back(predict.put_task({at::ones({1})}));
    held_up.first_has_come.wait();
    for (const int64_t length : {3, 3, 2, 3}) {
      results.push_back(predict.put_task({at::ones({length})}));
    }
    held_up.may_go_on.count_down();
  }
  EXPECT_THAT(held_up.sizes, ElementsAre(1, 2, 1, 1));
  EXPECT_EQ(results[3].get()[0].numel(), 2);
}

TEST(MultiThreadAsyncPredictorTest, AFailureReachesEveryCallerOfTheBatch) {
  MultiThreadAsyncPredictor predict(
      std::vector<MultiThreadAsyncPredictor::Predictor>{[](const Tensors& inputs) -> Tensors {
        TP_CHECK(inputs[0].sum().item<float>() > 0, "model", "it does not like zeros.");
        return {inputs[0]};
      }});
  auto bad = predict.put_task({at::zeros({1})});
  EXPECT_ERROR(bad.get(), "it does not like zeros");
  EXPECT_TRUE(at::equal(predict.put_task({at::ones({1})}).get()[0], at::ones({1})));
}

TEST(MultiThreadAsyncPredictorTest, AThreadThatCannotBeStartedIsAnError) {
  const MultiThreadAsyncPredictor::Predictor echo = [](const Tensors& inputs) { return inputs; };
  const ThreadLimit limit(1);
  EXPECT_ERROR(MultiThreadAsyncPredictor(std::vector{echo, echo}),
               "[thread 'predict'] it cannot be started: ");
}

TEST(MultiThreadAsyncPredictorTest, WhatIsEmptyIsRefusedBeforeItIsComputed) {
  using Predictor = MultiThreadAsyncPredictor::Predictor;
  EXPECT_ERROR(MultiThreadAsyncPredictor(std::vector<Predictor>{nullptr}),
               "a predictor is an empty function. Leave it out.");
  MultiThreadAsyncPredictor predict(
      std::vector<Predictor>{[](const Tensors& inputs) { return inputs; }});
  EXPECT_ERROR(predict.put_task({at::ones({2}), at::Tensor()}),
               "component 1 of the datapoint is an undefined tensor. Give it a value.");
}

TEST(MultiThreadAsyncPredictorTest, OutputsWithoutARowForEachAreRefused) {
  MultiThreadAsyncPredictor predict(std::vector<MultiThreadAsyncPredictor::Predictor>{
      [](const Tensors& inputs) -> Tensors { return {inputs[0].sum()}; }});
  EXPECT_ERROR(predict.put_task({at::ones({1})}).get(), "one row for each datapoint");
  EXPECT_ERROR(MultiThreadAsyncPredictor(std::vector<MultiThreadAsyncPredictor::Predictor>{}),
               "there is no predictor");
  EXPECT_ERROR(predict.put_task({}), "the datapoint has no tensors");
}

FromList numbers(int count) {
  std::vector<DataPoint> points;
  for (int i = 0; i < count; ++i)
    points.push_back({at::full({1 + i % 2, 2}, static_cast<float>(i))});
  return FromList(std::move(points));
}

TEST(DatasetPredictorTest, ResultsComeInTheOrderOfTheData) {
  for (const int towers : {1, 2, 3}) {
    DatasetPredictor predictor(config(), numbers(7), Devices::cpu(towers));
    const std::vector<Tensors> results = predictor.all();
    ASSERT_EQ(results.size(), 7) << towers;
    EXPECT_THAT(results, Each(SizeIs(2)));
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_TRUE(at::equal(results[i][0], at::full({1 + static_cast<int64_t>(i) % 2, 2},
                                                    3 * static_cast<float>(i))));
    }
    EXPECT_FALSE(predictor.next().has_value());
  }
}

TEST(DataParallelPredictorTest, EachTowerHasItsInputs) {
  const DataParallelOfflinePredictor predict(config(), Devices::cpu(3));
  const auto input = [](float value) { return Tensors{at::full({1, 2}, value)}; };
  const std::vector<Tensors> all = predict({input(1), input(2), input(3)});
  ASSERT_EQ(all.size(), 3);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_TRUE(at::equal(all[i][0], at::full({1, 2}, 3 * static_cast<float>(i + 1))));
  }
  EXPECT_EQ(predict({input(1), input(2)}).size(), 2);
  EXPECT_THROW(predict({input(1), input(2), input(3), input(4)}), Error);
  EXPECT_THROW(predict({input(1), {at::ones({1, 3})}}), std::exception);
}

TEST(FeedfreePredictorTest, TakesItsInputsFromTheSource) {
  FeedfreePredictor predict(config(), QueueInput(numbers(3), {.infinite = false}));
  for (int i = 0; i < 3; ++i) {
    const auto outputs = predict();
    ASSERT_TRUE(outputs.has_value());
    EXPECT_EQ((*outputs)[0][0][0].item<float>(), 3.0F * static_cast<float>(i));
  }
  EXPECT_FALSE(predict().has_value());
}

}  // namespace
}  // namespace tensorpack
