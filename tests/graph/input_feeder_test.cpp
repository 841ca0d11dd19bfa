// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/input_feeder.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <thread>

namespace tensorpack {
namespace {

using testing::ElementsAre;
using Batch = InputFeeder::Batch;

// Gives `count` batches: 0, 1, 2 ...
InputFeeder numbers(int64_t count) {
  return [next = int64_t{0}, count]() mutable -> std::optional<Batch> {
    if (next == count) return std::nullopt;
    return Batch{at::full({}, next++, at::kLong)};
  };
}

std::vector<int64_t> rest_of(const InputFeeder& feeder) {
  std::vector<int64_t> numbers;
  while (const auto batch = feeder.next()) numbers.push_back(batch->at(0).item<int64_t>());
  return numbers;
}

TEST(InputFeederTest, ABatchThatIsPutBackIsTheNext) {
  const InputFeeder feeder = numbers(4);
  Batch first = *feeder.next();
  Batch second = *feeder.next();
  feeder.put_back(std::move(second));
  feeder.put_back(std::move(first));
  EXPECT_EQ(feeder.batches_put_back(), 2);
  EXPECT_THAT(rest_of(feeder), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(feeder.batches_put_back(), 0);
}

TEST(InputFeederTest, ABatchMayBePutBackAfterTheEnd) {
  const InputFeeder feeder = numbers(1);
  Batch last = *feeder.next();
  EXPECT_FALSE(feeder.next().has_value());
  feeder.put_back(std::move(last));
  EXPECT_THAT(rest_of(feeder), ElementsAre(0));
}

TEST(InputFeederTest, CopiesAreOneFeeder) {
  const InputFeeder feeder = numbers(3);
  const InputFeeder copy = feeder;
  feeder.put_back(*copy.next());
  EXPECT_EQ(copy.batches_put_back(), 1);
  EXPECT_EQ(copy.next()->at(0).item<int64_t>(), 0);
  EXPECT_EQ(feeder.next()->at(0).item<int64_t>(), 1);
}

TEST(InputFeederTest, ResetForgetsWhatWasPutBack) {
  const InputFeeder feeder = numbers(2);
  feeder.put_back(*feeder.next());
  feeder.reset();
  EXPECT_THAT(rest_of(feeder), ElementsAre(1));
}

TEST(InputFeederTest, OneThreadAtATimeTakesABatch) {
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  const InputFeeder feeder = [&]() -> std::optional<Batch> {
    most = std::max<int>(most, ++inside);
    std::this_thread::yield();
    --inside;
    return Batch();
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 200; ++k) feeder.next();
      });
    }
  }
  EXPECT_EQ(most, 1);
}

TEST(InputFeederTest, ABatchIsPutBackWhileAnotherThreadWaitsForTheSource) {
  std::promise<void> is_waiting, may_go_on;
  const InputFeeder feeder = [&]() -> std::optional<Batch> {
    is_waiting.set_value();
    may_go_on.get_future().wait();
    return std::nullopt;
  };
  std::jthread other([&] { EXPECT_FALSE(feeder.next().has_value()); });
  is_waiting.get_future().wait();
  feeder.put_back({});
  EXPECT_EQ(feeder.batches_put_back(), 1);
  may_go_on.set_value();
}

TEST(InputFeederTest, WhatHasNoFunctionIsEmpty) {
  EXPECT_FALSE(InputFeeder());
  EXPECT_TRUE(numbers(1));
}

}  // namespace
}  // namespace tensorpack
