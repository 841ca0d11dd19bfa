// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/queue_input.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tensorpack/dataflow/map.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(QueueInputTest, WorksAheadUpToItsCapacity) {
  std::atomic<int64_t> made = 0;
  QueueInput source(numbers(100) | map([&](DataPoint p) {
                      ++made;
                      return p;
                    }),
                    {.capacity = 5});
  EXPECT_EQ(source.queue_size(), 0);
  source.reset_state();
  while (source.queue_size() < 5) std::this_thread::yield();
  // One more may be in the producer's hands, waiting for room.
  EXPECT_LE(made, 6);
  source.next();
  while (source.queue_size() < 5) std::this_thread::yield();
  EXPECT_LE(made, 7);
}

TEST(QueueInputTest, FlowRunsOnAThreadOfItsOwn) {
  std::thread::id worker;
  QueueInput source(numbers(3) | map([&](DataPoint p) {
                      worker = std::this_thread::get_id();
                      return p;
                    }),
                    {.infinite = false});
  while (source.next()) {
  }
  EXPECT_NE(worker, std::this_thread::get_id());
  EXPECT_NE(worker, std::thread::id());
}

TEST(QueueInputTest, ConstructingItReadsNothing) {
  std::atomic<int> made = 0;
  QueueInput source(numbers(3) | map([&](DataPoint p) {
                      ++made;
                      return p;
                    }));
  QueueInput moved = std::move(source);
  EXPECT_EQ(made, 0);
}

TEST(QueueInputTest, FailureIsThrownAgainUntilReset) {
  QueueInput source(numbers(1) | map([](DataPoint) -> DataPoint { throw std::bad_alloc(); }));
  EXPECT_THROW(source.next(), std::bad_alloc);
  EXPECT_THROW(source.next(), std::bad_alloc);
}

// The training would have what the buffer holds later.
TEST(QueueInputTest, ABufferThatIsYieldedAgainIsAnErrorThoughNotOfFeedInput) {
  const auto reused = [] {
    return numbers(9) | map([buffer = torch::zeros({2})](const DataPoint& point) {
             return DataPoint{buffer.fill_(point[0])};
           });
  };
  const auto read_all = [](InputSource& source) {
    while (source.next()) {
    }
  };
  QueueInput queue(reused(), {.capacity = 3});
  EXPECT_THAT(
      [&] { read_all(queue); },
      ThrowsMessage<Error>(HasSubstr("[QueueInput(Map)] component 0 was written to after")));
  StagingInput staging{FeedInput(reused())};
  EXPECT_THAT([&] { read_all(staging); },
              ThrowsMessage<Error>(HasSubstr("[StagingInput] component 0 was written to after")));
  FeedInput feed(reused());
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ((*feed.next())[0][1].item<int64_t>(), i);
}

TEST(QueueInputTest, CapacityMustBePositive) {
  EXPECT_THAT([] { QueueInput(numbers(1), {.capacity = 0}); },
              ThrowsMessage<Error>(HasSubstr("got 0")));
}

// The last datapoint waits in the queue, full or not, while everything is torn down.
TEST(QueueInputTest, ManyRestartsLoseNothing) {
  QueueInput source(numbers(20), {.capacity = 2});
  for (int64_t position = 0; position < 200; ++position) {
    source.reset_state(position);
    for (int64_t i = 0; i < position % 4; ++i) {
      EXPECT_EQ(source.next()->at(0).item<int64_t>(), (position + i) % 20);
    }
  }
}

}  // namespace
}  // namespace tensorpack::test
