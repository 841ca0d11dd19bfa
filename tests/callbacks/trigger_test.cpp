// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/trigger.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/callback_factory.h"
#include "tests/support/event_recorder.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// The events of one kind.
std::vector<std::string> only(const EventLog& log, const std::string& event) {
  std::vector<std::string> found;
  for (const std::string& entry : *log) {
    if (entry.rfind(event + " ", 0) == 0) found.push_back(entry.substr(event.size() + 1));
  }
  return found;
}

class TriggerTest : public testing::Test {
 protected:
  EventLog log_ = make_event_log();
  FakeTrainer trainer_{{.steps_per_epoch = 2, .max_epoch = 5}};
};

TEST_F(TriggerTest, PeriodicTriggerCountsEpochs) {
  trainer_.train({PeriodicTrigger(EventRecorder(log_), {.every_k_epochs = 2})});
  EXPECT_THAT(only(log_, "trigger"), ElementsAre("2/1/4", "4/1/8"));
  EXPECT_THAT(only(log_, "trigger_epoch"), ElementsAre());
}

TEST_F(TriggerTest, PeriodicTriggerCountsGlobalSteps) {
  trainer_.train({PeriodicTrigger(EventRecorder(log_), {.every_k_steps = 3})});
  EXPECT_THAT(only(log_, "trigger"), ElementsAre("2/0/3", "3/1/6", "5/0/9"));
}

TEST_F(TriggerTest, PeriodicTriggerMayComeBeforeTraining) {
  trainer_.train({PeriodicTrigger(EventRecorder(log_), {.before_train = true})});
  EXPECT_THAT(only(log_, "trigger"), ElementsAre("0/-1/0"));
}

TEST_F(TriggerTest, PeriodicTriggerHandsOnEverythingElse) {
  trainer_.train({PeriodicTrigger(EventRecorder(log_), {.every_k_epochs = 1})});
  EXPECT_EQ(only(log_, "setup_graph").size(), 1u);
  EXPECT_EQ(only(log_, "before_train").size(), 1u);
  EXPECT_EQ(only(log_, "before_epoch").size(), 5u);
  EXPECT_EQ(only(log_, "before_run").size(), 10u);
  EXPECT_EQ(only(log_, "after_run").size(), 10u);
  EXPECT_EQ(only(log_, "trigger_step").size(), 10u);
  EXPECT_EQ(only(log_, "after_epoch").size(), 5u);
  EXPECT_EQ(only(log_, "after_train").size(), 1u);
}

TEST_F(TriggerTest, EnableCallbackIfGuardsEpochsAndSteps) {
  const auto is_second_epoch = [](const Callback& self) { return self.epoch_num() == 2; };
  trainer_.train({EnableCallbackIf(EventRecorder(log_), is_second_epoch)});
  EXPECT_THAT(*log_, ElementsAre("setup_graph 0/-1/0", "before_train 0/-1/0", "before_epoch 2/1/2",
                                 "before_run 2/0/2", "after_run 2/0/3", "trigger_step 2/0/3",
                                 "before_run 2/1/3", "after_run 2/1/4", "trigger_step 2/1/4",
                                 "after_epoch 2/1/4", "trigger_epoch 2/1/4", "trigger 2/1/4",
                                 "after_train 5/1/10"));
}

TEST_F(TriggerTest, ARunIsEnabledAsAWhole) {
  const auto is_first_step = [](const Callback& self) { return self.global_step() == 0; };
  trainer_.train({EnableCallbackIf(EventRecorder(log_), is_first_step)});
  EXPECT_THAT(only(log_, "after_run"), ElementsAre("1/0/1"));
}

TEST_F(TriggerTest, PeriodicCallbackIncludesTheLastEpoch) {
  trainer_.train({PeriodicCallback(EventRecorder(log_), {.every_k_epochs = 2})});
  EXPECT_THAT(only(log_, "trigger"), ElementsAre("2/1/4", "4/1/8", "5/1/10"));
}

TEST_F(TriggerTest, PeriodicCallbackCountsSteps) {
  trainer_.train({PeriodicCallback(EventRecorder(log_), {.every_k_steps = 4})});
  EXPECT_THAT(only(log_, "trigger_step"), ElementsAre("2/1/4", "4/1/8"));
}

TEST_F(TriggerTest, PeriodsThatNeverComeAreErrors) {
  EXPECT_THAT([&] { PeriodicTrigger(EventRecorder(log_), {}); },
              ThrowsMessage<Error>(HasSubstr("[PeriodicTrigger] it would never be due")));
  EXPECT_THAT([&] { PeriodicCallback(EventRecorder(log_), {.every_k_steps = -1}); },
              ThrowsMessage<Error>(HasSubstr("got every_k_steps = -1")));
}

TEST_F(TriggerTest, ProxiesKeepWhereACallbackRuns) {
  MaintainStepCounter everywhere;
  EXPECT_FALSE(PeriodicTrigger(std::move(everywhere), {.before_train = true}).chief_only());
}

TEST(CallbackFactoryTest, CallsItsFunctions) {
  std::vector<std::string> calls;
  FakeTrainer({.steps_per_epoch = 3, .max_epoch = 2})
      .train({CallbackFactory({
          .setup_graph = [&](Callback&) { calls.push_back("setup_graph"); },
          .before_train = [&](Callback&) { calls.push_back("before_train"); },
          .trigger =
              [&](Callback& self) { calls.push_back(fmt::format("{}", self.global_step())); },
          .after_train = [&](Callback&) { calls.push_back("after_train"); },
      })});
  EXPECT_THAT(calls, ElementsAre("setup_graph", "before_train", "3", "6", "after_train"));
}

}  // namespace
}  // namespace tensorpack
