// SPDX-License-Identifier: Apache-2.0
// What input sources have in common.
#include "tensorpack/input_source/input_source.h"

#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <latch>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/capture.h"
#include "tests/support/leftovers.h"
#include "tests/support/thread_limit.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

// Yields pass * 100 + 0, 1, ..., and writes down which passes were started and what was read.
class Probe final : public DataFlow {
 public:
  struct Record {
    std::vector<int64_t> started;
    std::vector<int64_t> read;
  };

  Probe(int64_t count, bool knows_size, Record* record = nullptr)
      : count_(count), knows_size_(knows_size), record_(record) {}

  void start(int64_t pass) override {
    if (record_) record_->started.push_back(pass);
    pass_ = pass;
    position_ = 0;
  }
  std::optional<DataPoint> next() override {
    if (position_ == count_) return std::nullopt;
    const int64_t value = pass_ * 100 + position_++;
    if (record_) record_->read.push_back(value);
    return DataPoint{torch::scalar_tensor(value, torch::kLong)};
  }
  std::optional<int64_t> size() const override {
    return knows_size_ ? std::optional(count_) : std::nullopt;
  }

 private:
  int64_t count_;
  bool knows_size_;
  Record* record_;
  int64_t pass_ = 0;
  int64_t position_ = 0;
};

std::vector<int64_t> read(InputSource& source, int64_t limit) {
  std::vector<int64_t> result;
  while (std::ssize(result) < limit) {
    const auto point = source.next();
    if (!point) break;
    result.push_back(point->at(0).item<int64_t>());
  }
  return result;
}

DataFlowPtr fails_after(int64_t count) {
  return std::make_unique<FromGenerator>([count]() -> Generator<DataPoint> {
    for (int64_t i = 0; i < count; ++i) co_yield datapoint(torch::scalar_tensor(i, torch::kLong));
    throw std::out_of_range("record 2 is corrupt");
  });
}

// A StagingInput that is made as the others are.
class StagedInput final : public InputSource {
 public:
  explicit StagedInput(Owned<DataFlow> flow, QueueInputOptions options = {})
      : staging_(QueueInput(std::move(flow), options)) {}
  void reset_state(int64_t position = 0) override { staging_.reset_state(position); }
  std::optional<DataPoint> next() override { return staging_.next(); }
  int64_t position() const override { return staging_.position(); }
  std::optional<int64_t> size() const override { return staging_.size(); }
  void stop() override { staging_.stop(); }

 private:
  StagingInput staging_;
};

template <typename Source>
class InputSourceTest : public testing::Test {};

using Sources = testing::Types<FeedInput, QueueInput, StagedInput>;
TYPED_TEST_SUITE(InputSourceTest, Sources);

TYPED_TEST(InputSourceTest, DeliversPassAfterPassFromTheBeginning) {
  TypeParam source(Probe(3, true));
  EXPECT_EQ(source.size(), 3);
  EXPECT_THAT(read(source, 7), ElementsAre(0, 1, 2, 100, 101, 102, 200));
}

TYPED_TEST(InputSourceTest, FiniteSourceEndsAndStaysAtTheEnd) {
  TypeParam source(Probe(3, true), {.infinite = false});
  EXPECT_THAT(read(source, 10), ElementsAre(0, 1, 2));
  EXPECT_FALSE(source.next());
  source.reset_state();
  EXPECT_THAT(read(source, 10), ElementsAre(0, 1, 2));
}

TYPED_TEST(InputSourceTest, ResetInMidPassStartsAgain) {
  TypeParam source(Probe(3, true));
  read(source, 2);
  source.reset_state();
  EXPECT_THAT(read(source, 4), ElementsAre(0, 1, 2, 100));
  source.reset_state();
  source.reset_state();
  EXPECT_THAT(read(source, 1), ElementsAre(0));
}

TYPED_TEST(InputSourceTest, ResetGoesToAPositionOfTheStream) {
  for (const bool knows_size : {true, false}) {
    TypeParam source(Probe(3, knows_size));
    source.reset_state(5);
    EXPECT_THAT(read(source, 3), ElementsAre(102, 200, 201)) << knows_size;
    source.reset_state(3);
    EXPECT_THAT(read(source, 2), ElementsAre(100, 101)) << knows_size;
  }
}

TYPED_TEST(InputSourceTest, FiniteSourceEndsWithThePassItWasPositionedIn) {
  for (const bool knows_size : {true, false}) {
    TypeParam source(Probe(3, knows_size), {.infinite = false});
    source.reset_state(4);
    EXPECT_THAT(read(source, 10), ElementsAre(101, 102)) << knows_size;
    source.reset_state(6);
    EXPECT_THAT(read(source, 10), ElementsAre(200, 201, 202)) << knows_size;
  }
}

TYPED_TEST(InputSourceTest, WholePassesAreSkippedWithoutReadingThem) {
  Probe::Record record;
  {
    TypeParam source(Probe(10, true, &record), {.infinite = false});
    source.reset_state(1'000'000'002);
    read(source, 1);
  }
  EXPECT_THAT(record.started, ElementsAre(100'000'000));
  EXPECT_EQ(record.read.at(2), 10'000'000'002);
}

TYPED_TEST(InputSourceTest, PositionIsThatOfTheBatchesHandedOut) {
  for (const bool knows_size : {true, false}) {
    TypeParam source(Probe(3, knows_size));
    EXPECT_EQ(source.position(), 0);
    read(source, 4);
    EXPECT_EQ(source.position(), 4) << "whatever was made ahead";
    source.reset_state(8);
    EXPECT_EQ(source.position(), 8);
    read(source, 2);
    source.reset_state(source.position());
    EXPECT_THAT(read(source, 3), ElementsAre(301, 302, 400)) << "goes on as without the reset";
    source.stop();
    EXPECT_EQ(source.position(), 13);
  }
}

TYPED_TEST(InputSourceTest, TheEndAndFailuresAreNoBatches) {
  TypeParam finite(Probe(3, true), {.infinite = false});
  read(finite, 10);
  EXPECT_EQ(finite.position(), 3);
  TypeParam failing(fails_after(2));
  read(failing, 2);
  EXPECT_THROW(failing.next(), std::out_of_range);
  EXPECT_EQ(failing.position(), 2);
}

TEST(FeedInputTest, WhatIsSkippedIsNotMade) {
  int64_t made = 0;
  FeedInput source(numbers(100) | map([&made](DataPoint p) {
                     ++made;
                     return p;
                   }) |
                   batch(2));
  source.reset_state(80);
  EXPECT_EQ(made, 0);
  EXPECT_EQ(source.next()->at(0)[0].item<int64_t>(), 60);
  EXPECT_EQ(made, 2);
}

TEST(FeedInputTest, ItGoesToAPositionWithTheNextBatch) {
  for (const bool interruptible : {true, false}) {
    Probe::Record record;
    FeedInput source(Probe(10, false, &record), {.interruptible = interruptible});
    source.reset_state(4);
    EXPECT_EQ(source.position(), 4);
    EXPECT_THAT(record.read, IsEmpty()) << "what the flow needs may not be there yet";
    EXPECT_THAT(read(source, 2), ElementsAre(4, 5));
  }
}

// A flow that would make again what was used before, for ever.
class NeverThere final : public DataFlow {
 public:
  explicit NeverThere(std::shared_ptr<std::latch> end) : end_(std::move(end)) {}
  std::optional<DataPoint> next() override { return DataPoint{torch::ones({1})}; }
  int64_t skip(int64_t count) override {
    end_->wait();
    return count;
  }

 private:
  std::shared_ptr<std::latch> end_;
};

TYPED_TEST(InputSourceTest, ASignalIsHeededWhileItGoesToAPosition) {
  const auto end = std::make_shared<std::latch>(1);
  const SignalWatch watch;
  {
    TypeParam source((NeverThere(end)));
    source.reset_state(1000);
    std::raise(SIGTERM);
    EXPECT_THROW(source.next(), Interrupted);
  }
  end->count_down();
}

TYPED_TEST(InputSourceTest, ItTellsThatItTakesLongToGoToAPosition) {
  const auto end = std::make_shared<std::latch>(1);
  TypeParam source((NeverThere(end)));
  const std::string log = stdout_of([&] {
    source.reset_state(1000);
    std::jthread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(5500));
      end->count_down();
    });
    EXPECT_TRUE(source.next());
  });
  EXPECT_THAT(log, HasSubstr("(NeverThere) still goes to batch 1000, where training goes on: it "
                             "makes what was used before again. "));
}

TYPED_TEST(InputSourceTest, NegativePositionIsAnError) {
  TypeParam source(numbers(3));
  EXPECT_THAT([&] { source.reset_state(-1); }, ThrowsMessage<Error>(HasSubstr("got -1")));
}

TYPED_TEST(InputSourceTest, AThreadThatCannotBeStartedIsAnError) {
  TypeParam source(numbers(3));
  const ThreadLimit limit(0);
  EXPECT_ERROR(source.next(), "Input'] it cannot be started: ");
}

TYPED_TEST(InputSourceTest, EmptyPassIsAnErrorWhenInfiniteAndTheEndOtherwise) {
  TypeParam endless(numbers(0));
  EXPECT_THAT([&] { endless.next(); }, ThrowsMessage<Error>(HasSubstr("has no datapoints")));
  TypeParam finite(numbers(0), {.infinite = false});
  EXPECT_THAT(read(finite, 5), IsEmpty());
  TypeParam beyond(numbers(0), {.infinite = false});
  EXPECT_THAT(
      [&] {
        beyond.reset_state(1);
        beyond.next();
      },
      ThrowsMessage<Error>(HasSubstr("has no datapoints")));
}

TYPED_TEST(InputSourceTest, ExceptionOfTheFlowArrivesAfterTheDatapointsBeforeIt) {
  TypeParam source(fails_after(2));
  EXPECT_THAT(read(source, 2), ElementsAre(0, 1));
  EXPECT_THAT([&] { source.next(); }, ThrowsMessage<std::out_of_range>(HasSubstr("record 2")));
  source.reset_state();
  EXPECT_THAT(read(source, 2), ElementsAre(0, 1));
}

TYPED_TEST(InputSourceTest, StopEndsItUntilTheNextReset) {
  TypeParam source(Probe(3, true));
  read(source, 1);
  source.stop();
  source.stop();
  EXPECT_FALSE(source.next());
  source.reset_state(1);
  EXPECT_THAT(read(source, 2), ElementsAre(1, 2));
}

TYPED_TEST(InputSourceTest, IsDestroyedCleanlyAtAnyTime) {
  TypeParam untouched(numbers(3));
  for (int64_t count = 0; count < 4; ++count) {
    TypeParam source(numbers(3));
    source.reset_state();
    read(source, count);
  }
}

TYPED_TEST(InputSourceTest, ManyStartsAndStopsLeaveNothingBehind) {
  const Leftovers leftovers;
  for (int64_t i = 0; i < 200; ++i) {
    TypeParam source(numbers(3));
    for (int64_t position = 0; position < 5; ++position) {
      source.reset_state(position);
      read(source, (i + position) % 4);
    }
  }
  leftovers.expect_none();
}

// As a flow from elsewhere does whose senders are gone.
TYPED_TEST(InputSourceTest, CanBeStoppedWhileItsFlowWaitsForDataThatNeverCome) {
  if constexpr (!std::is_same_v<TypeParam, FeedInput>) {
    std::latch waits(1);
    TypeParam source(numbers(3) | map([&](DataPoint) -> DataPoint {
                       waits.count_down();
                       while (!stop_requested()) std::this_thread::yield();
                       throw std::runtime_error("it was told to end");
                     }));
    source.reset_state();
    waits.wait();
    source.stop();
    EXPECT_FALSE(source.next());
  }
}

TYPED_TEST(InputSourceTest, CanBeMovedInMidPass) {
  TypeParam source(Probe(3, true));
  read(source, 2);
  TypeParam moved = std::move(source);
  EXPECT_THAT(read(moved, 2), ElementsAre(2, 100));
}

TYPED_TEST(InputSourceTest, TakesAFlowInEveryFormAndBecomesAPointer) {
  DataFlowPtr flow = numbers(4) | shuffle({.seed = 1}) | batch(2);
  TypeParam from_pointer(std::move(flow));
  EXPECT_EQ(from_pointer.size(), 2);
  InputSourcePtr pointer = Owned<InputSource>(TypeParam(numbers(4) | batch(2)));
  EXPECT_EQ(pointer->next()->at(0).size(0), 2);
  EXPECT_THAT([] { TypeParam source(DataFlowPtr{}); },
              ThrowsMessage<Error>(HasSubstr("dataflow is null")));
}

TYPED_TEST(InputSourceTest, UnknownSizeIsUnknown) {
  EXPECT_EQ(TypeParam(Probe(3, false)).size(), std::nullopt);
}

}  // namespace
}  // namespace tensorpack::test
