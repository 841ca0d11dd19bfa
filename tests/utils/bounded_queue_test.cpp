// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/bounded_queue.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace tensorpack {
namespace {

using testing::Eq;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::exception_ptr broken() { return std::make_exception_ptr(std::out_of_range("broken")); }

TEST(BoundedQueueTest, FirstInFirstOut) {
  BoundedQueue<int> queue(3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(queue.push(i));
  EXPECT_EQ(queue.size(), 3u);
  EXPECT_EQ(queue.capacity(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_THAT(queue.pop(), Eq(i));
}

TEST(BoundedQueueTest, TakesValuesThatOnlyMove) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  queue.push(std::make_unique<int>(7));
  EXPECT_EQ(**queue.pop(), 7);
}

TEST(BoundedQueueTest, RefusedTryPushLeavesTheValue) {
  BoundedQueue<std::unique_ptr<int>> queue(1);
  auto value = std::make_unique<int>(7);
  EXPECT_TRUE(queue.try_push(std::make_unique<int>(6)));
  EXPECT_FALSE(queue.try_push(std::move(value)));
  EXPECT_NE(value, nullptr);
}

TEST(BoundedQueueTest, TryPopDoesNotWait) {
  BoundedQueue<int> queue(1);
  EXPECT_EQ(queue.try_pop(), std::nullopt);
  EXPECT_EQ(queue.pop_for(std::chrono::nanoseconds(1)), std::nullopt);
  EXPECT_FALSE(queue.finished());
  queue.push(1);
  EXPECT_THAT(queue.try_pop(), Eq(1));
}

TEST(BoundedQueueTest, ClosedQueueIsDrainedFirst) {
  BoundedQueue<int> queue(2);
  queue.push(1);
  queue.close();
  queue.close();
  EXPECT_TRUE(queue.closed());
  EXPECT_FALSE(queue.push(2));
  EXPECT_FALSE(queue.try_push(2));
  EXPECT_FALSE(queue.finished());
  EXPECT_THAT(queue.pop(), Eq(1));
  EXPECT_TRUE(queue.finished());
  EXPECT_EQ(queue.pop(), std::nullopt);
}

TEST(BoundedQueueTest, FailureComesBeforeWhatIsLeft) {
  BoundedQueue<int> queue(2);
  queue.push(1);
  queue.fail(broken());
  queue.fail(std::make_exception_ptr(std::logic_error("second")));
  EXPECT_FALSE(queue.push(2));
  EXPECT_EQ(queue.size(), 0u);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT([&] { queue.pop(); }, ThrowsMessage<std::out_of_range>(HasSubstr("broken")));
  }
  EXPECT_THROW(queue.try_pop(), std::out_of_range);
}

TEST(BoundedQueueTest, FailureAfterCloseIsStillDelivered) {
  BoundedQueue<int> queue(2);
  queue.push(1);
  queue.close();
  queue.fail(broken());
  EXPECT_THROW(queue.pop(), std::out_of_range);
}

TEST(BoundedQueueTest, RefusesNoCapacity) {
  EXPECT_THAT([] { BoundedQueue<int> queue(0); },
              ThrowsMessage<Error>(HasSubstr("capacity must be positive")));
}

TEST(BoundedQueueTest, ManyThreadsLoseAndRepeatNothing) {
  constexpr int kThreads = 4, kEach = 5000;
  BoundedQueue<int> queue(3);
  std::vector<std::atomic<int>> seen(kThreads * kEach);
  {
    std::vector<std::jthread> consumers;
    for (int t = 0; t < kThreads; ++t) {
      consumers.emplace_back([&] {
        while (const auto value = queue.pop()) ++seen[static_cast<std::size_t>(*value)];
      });
    }
    {
      std::vector<std::jthread> producers;
      for (int t = 0; t < kThreads; ++t) {
        producers.emplace_back([&queue, t] {
          for (int i = 0; i < kEach; ++i) EXPECT_TRUE(queue.push(t * kEach + i));
        });
      }
    }
    queue.close();
  }
  for (const auto& count : seen) ASSERT_EQ(count, 1);
}

TEST(BoundedQueueTest, CloseWakesWaitingProducers) {
  BoundedQueue<int> queue(1);
  queue.push(0);
  std::vector<int> accepted(3, -1);
  {
    std::vector<std::jthread> producers;
    for (int& result : accepted) producers.emplace_back([&] { result = queue.push(1); });
    queue.close();
  }
  EXPECT_EQ(accepted, std::vector<int>(3, 0));
}

TEST(BoundedQueueTest, FailureWakesWaitingConsumers) {
  BoundedQueue<int> queue(1);
  std::atomic<int> caught = 0;
  {
    std::vector<std::jthread> consumers;
    for (int t = 0; t < 3; ++t) {
      consumers.emplace_back([&] {
        try {
          queue.pop();
        } catch (const std::out_of_range&) {
          ++caught;
        }
      });
    }
    queue.fail(broken());
  }
  EXPECT_EQ(caught, 3);
}

}  // namespace
}  // namespace tensorpack
