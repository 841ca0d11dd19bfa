// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/staging_input.h"

#include <gmock/gmock.h>

#include <atomic>
#include <csignal>
#include <future>
#include <memory>
#include <thread>

#include "tensorpack/dataflow/map.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/utils/signals.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

FeedInput counted(std::atomic<int64_t>& made) {
  return FeedInput(numbers(100) | map([&made](DataPoint p) {
                     ++made;
                     return p;
                   }));
}

TEST(StagingInputTest, WorksAheadOfTheLoopByAsMuchAsAsked) {
  std::atomic<int64_t> made = 0;
  StagingInput source(counted(made), {.ahead = 2});
  EXPECT_EQ(made, 0);
  source.reset_state();
  // One more is in the hands of the thread, waiting for room.
  while (made < 3) std::this_thread::yield();
  EXPECT_EQ(source.next()->at(0).item<int64_t>(), 0);
  while (made < 4) std::this_thread::yield();
  EXPECT_EQ(source.next()->at(0).item<int64_t>(), 1);
  source.stop();
  EXPECT_LE(made, 5);
  EXPECT_FALSE(source.next());
}

TEST(StagingInputTest, IsPutAroundDataForGpusOnce) {
  std::atomic<int64_t> made = 0;
  const FeedInput plain = counted(made);
  const c10::Device cpu = c10::kCPU, gpu("cuda:0");
  EXPECT_FALSE(wants_staging(plain, {cpu, cpu}));
  EXPECT_TRUE(wants_staging(plain, {gpu}));
  EXPECT_TRUE(wants_staging(plain, {cpu, gpu}));
  EXPECT_FALSE(wants_staging(StagingInput(counted(made)), {gpu}));
  const Owned<InputSource> on_cpu = staged(counted(made), {cpu});
  EXPECT_EQ(&on_cpu->origin(), on_cpu.get());
}

// Waits for ever, or until it is let go, and notes who uses it meanwhile.
class StuckSource final : public InputSource {
 public:
  struct Uses {
    std::promise<void> begin, lets_go, end;
    std::atomic<bool> is_waiting = false;
    std::atomic<int> others = 0;
  };

  explicit StuckSource(std::shared_ptr<Uses> uses) : uses_(std::move(uses)) {}

  void reset_state(int64_t) override { note_other(); }
  std::optional<DataPoint> next() override {
    uses_->is_waiting = true;
    uses_->begin.set_value();
    uses_->lets_go.get_future().wait();
    uses_->is_waiting = false;
    uses_->end.set_value();
    return std::nullopt;
  }
  int64_t position() const override { return 0; }
  void stop() override { note_other(); }

 private:
  void note_other() { uses_->others += uses_->is_waiting ? 1 : 0; }

  std::shared_ptr<Uses> uses_;
};

// Endless, and counts how often it is stopped.
class CountedSource final : public InputSource {
 public:
  explicit CountedSource(std::atomic<int>& stops) : stops_(stops) {}

  void reset_state(int64_t) override {}
  std::optional<DataPoint> next() override { return DataPoint{at::zeros({1})}; }
  int64_t position() const override { return 0; }
  void stop() override { ++stops_; }

 private:
  std::atomic<int>& stops_;
};

TEST(StagingInputTest, StopsItsSource) {
  std::atomic<int> stops = 0;
  StagingInput source((CountedSource(stops)));
  source.reset_state();
  EXPECT_TRUE(source.next());
  const int before = stops;
  source.stop();
  EXPECT_EQ(stops, before + 1);
}

TEST(StagingInputTest, AThreadThatASignalLeavesBehindHasTheSourceForItself) {
  auto uses = std::make_shared<StuckSource::Uses>();
  const SignalWatch watch;
  {
    StagingInput source((StuckSource(uses)));
    source.reset_state();
    uses->begin.get_future().wait();
    std::raise(SIGTERM);
    EXPECT_THROW(source.next(), Interrupted);
    source.stop();
    source.stop();
    EXPECT_ERROR(source.reset_state(), "[StagingInput] its thread was left behind when a signal");
  }
  EXPECT_EQ(uses->others, 0);
  uses->lets_go.set_value();
  uses->end.get_future().wait();
}

TEST(StagingInputTest, BadOptionsAreErrors) {
  std::atomic<int64_t> made = 0;
  EXPECT_ERROR(StagingInput(nullptr), "[StagingInput] there is no source. Pass one.");
  EXPECT_ERROR(StagingInput(counted(made), {.devices = {}}),
               "there is no device. Pass at least one.");
  EXPECT_ERROR(StagingInput(counted(made), {.ahead = 0}), "ahead 0");
  EXPECT_ERROR(StagingInput(counted(made), {.steps_in_flight = 0}), "steps_in_flight 0");
}

}  // namespace
}  // namespace tensorpack::test
