// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/staging_input.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "tensorpack/dataflow/map.h"
#include "tensorpack/input_source/feed_input.h"
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
