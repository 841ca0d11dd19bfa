// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/detail/callbacks.h"

#include <gmock/gmock.h>

#include "tensorpack/monitors/monitor.h"
#include "tests/support/capture.h"
#include "tests/support/event_recorder.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using detail::describe_callback_times;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// Throws `E` when `event` happens.
template <typename E>
class Thrower final : public Callback {
 public:
  explicit Thrower(std::string event) : event_(std::move(event)) {}
  void trigger_step() override { check("trigger_step"); }
  void trigger() override { check("trigger"); }
  void after_train() override { check("after_train"); }

 private:
  void check(const std::string& event) const {
    if (event == event_) throw E(event + " throws");
  }
  std::string event_;
};

TEST(CallbacksTest, EveryMethodRunsInTheOrderOfTheList) {
  const EventLog log = make_event_log();
  FakeTrainer({.steps_per_epoch = 1, .max_epoch = 2})
      .train({EventRecorder(log, "A"), EventRecorder(log, "B")});
  EXPECT_THAT(*log, ElementsAre("A setup_graph 0/-1/0", "B setup_graph 0/-1/0",    //
                                "A before_train 0/-1/0", "B before_train 0/-1/0",  //
                                "A before_epoch 1/-1/0", "B before_epoch 1/-1/0",  //
                                "A before_run 1/0/0", "B before_run 1/0/0",        //
                                "A after_run 1/0/1", "B after_run 1/0/1",          //
                                "A trigger_step 1/0/1", "B trigger_step 1/0/1",    //
                                "A after_epoch 1/0/1", "B after_epoch 1/0/1",      //
                                "A trigger_epoch 1/0/1", "A trigger 1/0/1",        //
                                "B trigger_epoch 1/0/1", "B trigger 1/0/1",        //
                                "A before_epoch 2/0/1", "B before_epoch 2/0/1",    //
                                "A before_run 2/0/1", "B before_run 2/0/1",        //
                                "A after_run 2/0/2", "B after_run 2/0/2",          //
                                "A trigger_step 2/0/2", "B trigger_step 2/0/2",    //
                                "A after_epoch 2/0/2", "B after_epoch 2/0/2",      //
                                "A trigger_epoch 2/0/2", "A trigger 2/0/2",        //
                                "B trigger_epoch 2/0/2", "B trigger 2/0/2",        //
                                "A after_train 2/0/2", "B after_train 2/0/2"));
}

TEST(CallbacksTest, StopTrainingInTriggerEpochLetsLaterCallbacksFinishTheEpoch) {
  const EventLog log = make_event_log();
  FakeTrainer({.steps_per_epoch = 1, .max_epoch = 5})
      .train({Thrower<StopTraining>("trigger"), EventRecorder(log)});
  EXPECT_THAT(*log, Contains("trigger 1/0/1"));
  EXPECT_THAT(*log, Not(Contains(HasSubstr(" 2/"))));
}

TEST(CallbacksTest, OtherErrorsEndTheEpochAtOnce) {
  const EventLog log = make_event_log();
  FakeTrainer trainer;
  EXPECT_THAT(
      [&] {
        trainer.train({Thrower<Error>("trigger"), EventRecorder(log)});
      },
      ThrowsMessage<Error>(HasSubstr("trigger throws")));
  EXPECT_THAT(*log, Not(Contains(HasSubstr("trigger_epoch"))));
  EXPECT_THAT(*log, Contains(HasSubstr("after_train")));
}

TEST(CallbacksTest, AfterTrainRunsEveryCallbackAndReturnsTheFirstError) {
  const EventLog log = make_event_log();
  FakeTrainer trainer;
  const std::string text = stdout_of([&] {
    EXPECT_THAT(
        [&] {
          trainer.train({Thrower<Error>("after_train"), Thrower<StopTraining>("after_train"),
                         EventRecorder(log)});
        },
        ThrowsMessage<Error>(HasSubstr("after_train throws")));
  });
  EXPECT_THAT(*log, Contains("after_train 1/1/2"));
  EXPECT_THAT(text, HasSubstr("failed in after_train: after_train throws"));
}

class MonitorRecorder final : public MonitorBase {
 public:
  explicit MonitorRecorder(EventLog log) : log_(std::move(log)) {}
  void before_train(const LoopState&) override { log_->push_back("monitor before_train"); }
  void trigger_step(const LoopState&) override { log_->push_back("monitor trigger_step"); }
  void trigger_epoch(const LoopState&) override { log_->push_back("monitor trigger_epoch"); }
  void after_train(const LoopState&) override { log_->push_back("monitor after_train"); }

 private:
  EventLog log_;
};

TEST(RunMonitorsTest, MonitorsComeLastAndSeeAStoppedEpoch) {
  const EventLog log = make_event_log();
  FakeTrainer({.steps_per_epoch = 1, .max_epoch = 9})
      .train({Thrower<StopTraining>("trigger")}, {MonitorRecorder(log)});
  EXPECT_THAT(*log, ElementsAre("monitor before_train", "monitor trigger_step",
                                "monitor trigger_epoch", "monitor after_train"));
}

TEST(CallbackTimesTest, OnlySlowCallbacksAreNamed) {
  EXPECT_EQ(describe_callback_times({{"A", 1.5}}), "");
  EXPECT_EQ(describe_callback_times({{"A", 1.5}, {"B", 0.3}, {"C", 2.0}}),
            "Callbacks took 3.8 seconds in total; A: 1.5 seconds; C: 2 seconds.");
  EXPECT_EQ(describe_callback_times({{"A", 0.7}, {"B", 0.7}, {"C", 0.6}}),
            "Callbacks took 2 seconds in total.");
}

TEST(CallbackTest, HasNoTrainerBeforeItIsSetUp) {
  EventRecorder recorder(make_event_log());
  EXPECT_THAT([&] { recorder.trainer(); },
              ThrowsMessage<Error>(HasSubstr("[EventRecorder] it belongs to no trainer yet")));
}

}  // namespace
}  // namespace tensorpack
