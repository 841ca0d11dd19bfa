// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/remap_input_source.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/utils/error.h"
#include "tests/dataflow/numbers.h"
#include "tests/train/linear_model.h"

namespace tensorpack::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::vector<TensorSpec> kInputs = {
    {"image", {}, torch::kLong}, {"label", {}, torch::kLong}, {"noise", {}, torch::kLong}};

// {n, 10 * n}
DataFlowPtr pairs(int64_t count) {
  return numbers(count) | map([](DataPoint p) { return DataPoint{p[0], 10 * p[0]}; });
}

TEST(RemapInputSourceTest, GivesEachComponentToTheInputOfItsName) {
  RemappedInput source = remap_input_source(FeedInput(pairs(5)), kInputs, {"label", "image"});
  source.reset_state(3);
  const DataPoint batch = *source.next();
  ASSERT_EQ(batch.size(), 3U);
  EXPECT_EQ(batch[0].item<int64_t>(), 30);
  EXPECT_EQ(batch[1].item<int64_t>(), 3);
  EXPECT_FALSE(batch[2].defined());
}

TEST(RemapInputSourceTest, IsTheSourceInEverythingElse) {
  RemappedInput source =
      remap_input_source(QueueInput(pairs(2), {.infinite = false}), kInputs, {"label", "image"});
  EXPECT_EQ(source.size(), 2);
  EXPECT_EQ(source.name(), "QueueInput(Map)");
  EXPECT_NE(dynamic_cast<const QueueInput*>(&source.origin()), nullptr);
  EXPECT_NE(source.stats(), nullptr);
  source.next();
  EXPECT_EQ(source.position(), 1);
  source.next();
  EXPECT_FALSE(source.next());
  source.reset_state();
  EXPECT_TRUE(source.next());
  source.stop();
  EXPECT_FALSE(source.next());
}

TEST(RemapInputSourceTest, CanBeStaged) {
  StagingInput source(remap_input_source(FeedInput(pairs(5)), kInputs, {"noise", "image"}));
  const DataPoint batch = *source.next();
  EXPECT_TRUE(batch[0].defined() && !batch[1].defined() && batch[2].defined());
}

TEST(RemapInputSourceTest, SaysWhichNameIsWrong) {
  EXPECT_THAT(
      [] {
        remap_input_source(FeedInput(pairs(5)), kInputs, {"imaeg", "label"});
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("no input 'imaeg'"), HasSubstr("'image'?"))));
  EXPECT_THAT(
      [] {
        remap_input_source(FeedInput(pairs(5)), kInputs, {"label", "label"});
      },
      ThrowsMessage<Error>(HasSubstr("'label' is named twice")));
  EXPECT_THAT([] { remap_input_source(nullptr, kInputs, {}); },
              ThrowsMessage<Error>(HasSubstr("no source")));
  RemappedInput source = remap_input_source(FeedInput(pairs(5)), kInputs, {"label"});
  EXPECT_THAT([&] { source.next(); },
              ThrowsMessage<Error>(AllOf(HasSubstr("FeedInput(Map) has 2 components"),
                                         HasSubstr("and names are given for 1 (label)"))));
}

// Feeds what the data does not have.
class FeedY final : public Callback {
 public:
  RunArgs before_run(RunContext&) override { return {.feeds = {{"y", torch::ones({2})}}}; }
};

RemappedInput only_x() {
  return remap_input_source(FeedInput(FromList({{torch::zeros({2})}})), linear_inputs(), {"x"});
}

TEST(RemapInputSourceTest, CallbacksFeedTheOtherInputs) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), only_x(), linear_cost, SGD({.lr = 0.1}));
  trainer.train({.callbacks = {FeedY()}, .steps_per_epoch = 100, .max_epoch = 1});
  EXPECT_NEAR(trainer.variables().at("b").tensor.item<float>(), 1, 1e-3);
}

TEST(RemapInputSourceTest, AnInputThatNobodyFeedsIsAnError) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), only_x(), linear_cost, SGD({.lr = 0.1}));
  EXPECT_THAT([&] { trainer.train({.steps_per_epoch = 1, .max_epoch = 1}); },
              ThrowsMessage<Error>(HasSubstr("'y' was given an undefined tensor")));
}

}  // namespace
}  // namespace tensorpack::test
