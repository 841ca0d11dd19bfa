// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/tensor_input.h"

#include <gmock/gmock.h>

#include <thread>

#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/placeholder_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(PlaceholderInputTest, ARunThatIsNotFedIsAnError) {
  PlaceholderInput source;
  EXPECT_THAT([&] { source.next(); }, ThrowsMessage<Error>(HasSubstr("was not given all inputs")));
}

TEST(TensorInputTest, AsksTheFunctionForEveryBatch) {
  TensorInput source([](int64_t number) { return DataPoint{torch::tensor(number)}; }, 10);
  EXPECT_EQ(source.size(), 10);
  EXPECT_EQ(source.next()->at(0).item<int64_t>(), 0);
  source.reset_state(7);
  EXPECT_EQ(source.next()->at(0).item<int64_t>(), 7);
  EXPECT_EQ(source.position(), 8);
  source.stop();
  EXPECT_FALSE(source.next());
  EXPECT_THAT([] { TensorInput([](int64_t) { return DataPoint(); }, 0); },
              ThrowsMessage<Error>(HasSubstr("got 0")));
}

TEST(TensorInputTest, DummyConstantIsTheSameMemoryEachTime) {
  TensorInput source =
      DummyConstantInput({{.shape = {2, 3}}, {.shape = {2}, .dtype = torch::kLong}});
  const DataPoint first = *source.next();
  EXPECT_TRUE(same(first, {torch::zeros({2, 3}), torch::zeros({2}, torch::kLong)}));
  EXPECT_EQ(source.next()->at(0).data_ptr(), first[0].data_ptr());
}

TEST(BatchQueueInputTest, MakesBatchesOfSingleDatapoints) {
  QueueInput source = BatchQueueInput(numbers(7), 3, {.capacity = 4});
  EXPECT_EQ(source.size(), 2);
  EXPECT_TRUE(same(*source.next(), {torch::tensor({0, 1, 2})}));
  source.reset_state(3);
  EXPECT_TRUE(same(*source.next(), {torch::tensor({3, 4, 5})}));
}

TEST(InputStatsTest, NamesTheSlowStageBehindTheQueue) {
  QueueInput source(numbers(100) | map([](DataPoint p) {
                      const bool is_timed = p[0].item<int64_t>() % detail::kSampleEvery == 0;
                      std::this_thread::sleep_for(std::chrono::milliseconds(is_timed ? 100 : 0));
                      return p;
                    }));
  for (int i = 0; i < 20; ++i) source.next();
  EXPECT_EQ(slowest_stage(*source.stats())->name, "Map");
  EXPECT_EQ(stage_report(*source.stats()).back().name, "QueueInput");
  FeedInput feed(numbers(3) | map([](DataPoint p) { return p; }));
  EXPECT_EQ(stage_report(*feed.stats()).back().name, "Map");
}

}  // namespace
}  // namespace tensorpack::test
