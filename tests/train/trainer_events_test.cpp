// SPDX-License-Identifier: Apache-2.0
// The complete list of calls, with epoch/local step/global step at each, for every way a training
// can go.
#include <gmock/gmock.h>

#include <algorithm>

#include "tensorpack/train/trainer.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/event_recorder.h"
#include "tests/train/step_trainer.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

using Events = std::vector<std::string>;

struct Outcome {
  Events events;
  std::string error;  // what train() threw
  std::string log;
};

// Trains with two recorders, A and B, around `between`.
Outcome train(Trainer& trainer, OwnedList<Callback> between, TrainOptions options) {
  const EventLog log = make_event_log();
  OwnedList<Callback> callbacks{EventRecorder(log, "A")};
  callbacks.append(std::move(between));
  callbacks.add(EventRecorder(log, "B"));
  options.callbacks = std::move(callbacks);
  Outcome outcome;
  outcome.log = stdout_of([&] {
    try {
      trainer.train(std::move(options));
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
  });
  outcome.events = *log;
  return outcome;
}

Outcome train(OwnedList<Callback> between, TrainOptions options) {
  Trainer trainer;
  trainer.set_train_op(Op::nothing());
  return train(trainer, std::move(between), std::move(options));
}

TrainOptions two_by_two() { return {.steps_per_epoch = 2, .max_epoch = 2}; }

const Events kNormal = {
    "A setup_graph 0/-1/0",  "B setup_graph 0/-1/0",   //
    "A before_train 0/-1/0", "B before_train 0/-1/0",  //
    "A before_epoch 1/-1/0", "B before_epoch 1/-1/0",  //
    "A before_run 1/0/0",    "B before_run 1/0/0",     //
    "A after_run 1/0/1",     "B after_run 1/0/1",      //
    "A trigger_step 1/0/1",  "B trigger_step 1/0/1",   //
    "A before_run 1/1/1",    "B before_run 1/1/1",     //
    "A after_run 1/1/2",     "B after_run 1/1/2",      //
    "A trigger_step 1/1/2",  "B trigger_step 1/1/2",   //
    "A after_epoch 1/1/2",   "B after_epoch 1/1/2",    //
    "A trigger_epoch 1/1/2", "A trigger 1/1/2",        //
    "B trigger_epoch 1/1/2", "B trigger 1/1/2",        //
    "A before_epoch 2/1/2",  "B before_epoch 2/1/2",   //
    "A before_run 2/0/2",    "B before_run 2/0/2",     //
    "A after_run 2/0/3",     "B after_run 2/0/3",      //
    "A trigger_step 2/0/3",  "B trigger_step 2/0/3",   //
    "A before_run 2/1/3",    "B before_run 2/1/3",     //
    "A after_run 2/1/4",     "B after_run 2/1/4",      //
    "A trigger_step 2/1/4",  "B trigger_step 2/1/4",   //
    "A after_epoch 2/1/4",   "B after_epoch 2/1/4",    //
    "A trigger_epoch 2/1/4", "A trigger 2/1/4",        //
    "B trigger_epoch 2/1/4", "B trigger 2/1/4",        //
    "A after_train 2/1/4",   "B after_train 2/1/4",
};

// The normal list up to and including `last`, and then `rest`.
Events normal_until(const std::string& last, Events rest) {
  const auto found = std::find(kNormal.begin(), kNormal.end(), last);
  EXPECT_NE(found, kNormal.end()) << last;
  Events events(kNormal.begin(), found + 1);
  events.insert(events.end(), rest.begin(), rest.end());
  return events;
}

TEST(TrainerEventsTest, NormalRunFollowsTheReferenceTrace) {
  const Outcome outcome = train({}, two_by_two());
  EXPECT_EQ(outcome.events, kNormal);
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.log, HasSubstr("Start epoch 1 ..."));
  EXPECT_THAT(outcome.log, HasSubstr("Epoch 2 (global_step 4) finished, time: "));
  EXPECT_THAT(outcome.log, HasSubstr("Training has finished."));
}

TEST(TrainerEventsTest, EpochsWithoutStepsRunCallbacks) {
  EXPECT_THAT(train({}, {.steps_per_epoch = 0, .max_epoch = 2}).events,
              ElementsAre("A setup_graph 0/-1/0", "B setup_graph 0/-1/0",    //
                          "A before_train 0/-1/0", "B before_train 0/-1/0",  //
                          "A before_epoch 1/-1/0", "B before_epoch 1/-1/0",  //
                          "A after_epoch 1/-1/0", "B after_epoch 1/-1/0",    //
                          "A trigger_epoch 1/-1/0", "A trigger 1/-1/0",      //
                          "B trigger_epoch 1/-1/0", "B trigger 1/-1/0",      //
                          "A before_epoch 2/-1/0", "B before_epoch 2/-1/0",  //
                          "A after_epoch 2/-1/0", "B after_epoch 2/-1/0",    //
                          "A trigger_epoch 2/-1/0", "A trigger 2/-1/0",      //
                          "B trigger_epoch 2/-1/0", "B trigger 2/-1/0",      //
                          "A after_train 2/-1/0", "B after_train 2/-1/0"));
}

TEST(TrainerEventsTest, StartingAfterTheLastEpochRunsNone) {
  EXPECT_THAT(train({}, {.steps_per_epoch = 2, .starting_epoch = 2, .max_epoch = 1}).events,
              ElementsAre("A setup_graph 0/-1/0", "B setup_graph 0/-1/0",    //
                          "A before_train 1/-1/0", "B before_train 1/-1/0",  //
                          "A after_train 1/-1/0", "B after_train 1/-1/0"));
}

TEST(TrainerEventsTest, StartingStepShortensTheFirstEpochAlone) {
  EXPECT_THAT(
      train({}, {.steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 4, .starting_step = 1})
          .events,
      testing::IsSupersetOf({"A before_epoch 3/-1/0", "A before_run 3/1/0", "A trigger_epoch 3/1/1",
                             "A before_run 4/0/1", "A before_run 4/1/2", "A after_train 4/1/3"}));
}

TEST(TrainerEventsTest, GlobalStepCountsHookedRunsNotSteps) {
  StepTrainer none = hooked_runs(0);
  EXPECT_THAT(train(none, {}, {.steps_per_epoch = 2, .max_epoch = 1}).events,
              ElementsAre("A setup_graph 0/-1/0", "B setup_graph 0/-1/0",    //
                          "A before_train 0/-1/0", "B before_train 0/-1/0",  //
                          "A before_epoch 1/-1/0", "B before_epoch 1/-1/0",  //
                          "A trigger_step 1/0/0", "B trigger_step 1/0/0",    //
                          "A trigger_step 1/1/0", "B trigger_step 1/1/0",    //
                          "A after_epoch 1/1/0", "B after_epoch 1/1/0",      //
                          "A trigger_epoch 1/1/0", "A trigger 1/1/0",        //
                          "B trigger_epoch 1/1/0", "B trigger 1/1/0",        //
                          "A after_train 1/1/0", "B after_train 1/1/0"));
  StepTrainer one = hooked_runs(1);
  EXPECT_EQ(train(one, {}, two_by_two()).events, kNormal);
  StepTrainer two = hooked_runs(2);
  EXPECT_THAT(train(two, {}, {.steps_per_epoch = 1, .max_epoch = 1}).events,
              ElementsAre("A setup_graph 0/-1/0", "B setup_graph 0/-1/0",    //
                          "A before_train 0/-1/0", "B before_train 0/-1/0",  //
                          "A before_epoch 1/-1/0", "B before_epoch 1/-1/0",  //
                          "A before_run 1/0/0", "B before_run 1/0/0",        //
                          "A after_run 1/0/1", "B after_run 1/0/1",          //
                          "A before_run 1/0/1", "B before_run 1/0/1",        //
                          "A after_run 1/0/2", "B after_run 1/0/2",          //
                          "A trigger_step 1/0/2", "B trigger_step 1/0/2",    //
                          "A after_epoch 1/0/2", "B after_epoch 1/0/2",      //
                          "A trigger_epoch 1/0/2", "A trigger 1/0/2",        //
                          "B trigger_epoch 1/0/2", "B trigger 1/0/2",        //
                          "A after_train 1/0/2", "B after_train 1/0/2"));
}

// Where something is thrown between A and B, the last event before it, and where the loop stands.
struct Ending {
  std::string method;
  int call;
  std::string last;
  std::string state;
};

const std::vector<Ending> kEndings = {
    {"before_train", 0, "A before_train 0/-1/0", "0/-1/0"},
    {"before_epoch", 1, "A before_epoch 2/1/2", "2/1/2"},
    {"before_run", 2, "A before_run 2/0/2", "2/0/2"},
    {"after_run", 1, "A after_run 1/1/2", "1/1/2"},
    {"trigger_step", 0, "A trigger_step 1/0/1", "1/0/1"},
    {"after_epoch", 0, "A after_epoch 1/1/2", "1/1/2"},
    {"trigger_epoch", 0, "A trigger 1/1/2", "1/1/2"},
};

class EndingTest : public testing::TestWithParam<Ending> {};

TEST_P(EndingTest, StopTrainingEndsTheLoopNormally) {
  const auto& [method, call, last, state] = GetParam();
  const Outcome outcome =
      train({ActAt(method, call, [] { throw StopTraining("enough"); })}, two_by_two());
  Events rest = {"A after_train " + state, "B after_train " + state};
  // Later callbacks still get their end of the epoch: a saver or a monitor may be among them.
  if (method == "trigger_epoch") {
    rest.insert(rest.begin(), {"B trigger_epoch " + state, "B trigger " + state});
  }
  EXPECT_EQ(outcome.events, normal_until(last, rest));
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.log, HasSubstr("Training was stopped: enough"));
  EXPECT_THAT(outcome.log, Not(HasSubstr("Training has finished.")));
}

TEST_P(EndingTest, ExceptionIsRethrownAfterAfterTrain) {
  const auto& [method, call, last, state] = GetParam();
  const Outcome outcome =
      train({ActAt(method, call, [] { throw std::runtime_error("broken"); })}, two_by_two());
  EXPECT_EQ(outcome.events,
            normal_until(last, {"A after_train " + state, "B after_train " + state}));
  EXPECT_THAT(outcome.error, StartsWith("broken\n  in " + method + "() of ActAt\n"));
  const std::string global_step = state.substr(state.rfind('/') + 1);
  EXPECT_THAT(outcome.error, EndsWith("\n  at global_step = " + global_step));
  EXPECT_THAT(outcome.log, HasSubstr("Training failed: " + outcome.error + "\n"));
}

INSTANTIATE_TEST_SUITE_P(EveryMethod, EndingTest, testing::ValuesIn(kEndings),
                         [](const auto& info) { return info.param.method; });

TEST(TrainerEventsTest, ExceptionInSetupGraphComesBeforeTheLoop) {
  const Outcome outcome =
      train({ActAt("setup_graph", 0, [] { throw std::runtime_error("broken"); })}, two_by_two());
  EXPECT_THAT(outcome.events, ElementsAre("A setup_graph 0/-1/0"));
  EXPECT_EQ(outcome.error, "broken\n  in setup_graph() of ActAt");
}

TEST(TrainerEventsTest, AfterTrainOfAllRunsThoughOneThrows) {
  const Outcome outcome =
      train({ActAt("after_train", 0, [] { throw std::runtime_error("broken"); })}, two_by_two());
  EXPECT_EQ(outcome.events, kNormal);
  EXPECT_EQ(outcome.error, "broken\n  in after_train() of ActAt");
  EXPECT_THAT(outcome.log, HasSubstr("ActAt failed in after_train: broken"));
}

TEST(TrainerEventsTest, TheFirstFailureIsTheOneThrown) {
  const Outcome outcome =
      train({ActAt("before_epoch", 0, [] { throw std::runtime_error("first"); }),
             ActAt("after_train", 0, [] { throw std::runtime_error("second"); })},
            two_by_two());
  EXPECT_THAT(outcome.error, StartsWith("first\n"));
}

class RequestStop final : public Callback {
 public:
  explicit RequestStop(int run) : runs_left_(run) {}
  void after_run(RunContext& context, const FetchedValues&) override {
    if (runs_left_-- == 0) context.request_stop();
  }

 private:
  int runs_left_;
};

TEST(TrainerEventsTest, RequestStopEndsBeforeTheNextStep) {
  const Outcome outcome = train({RequestStop(2)}, two_by_two());
  EXPECT_EQ(outcome.events,
            normal_until("B trigger_step 2/0/3", {"A after_train 2/0/3", "B after_train 2/0/3"}));
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.log, HasSubstr("Training was stopped: a callback asked for it."));
}

TEST(TrainerEventsTest, RequestStopAtTheLastStepLetsTheEpochEnd) {
  EXPECT_EQ(train({RequestStop(1)}, two_by_two()).events,
            normal_until("B trigger 1/1/2", {"A after_train 1/1/2", "B after_train 1/1/2"}));
}

TEST(TrainerEventsTest, AFurtherRunInAStoppedStepThrows) {
  StepTrainer trainer = hooked_runs(2);
  EXPECT_THAT(train(trainer, {RequestStop(0)}, two_by_two()).error,
              HasSubstr("[hooked run] op 'nothing' is run after a stop was requested."));
}

// A trainer whose data ends after so many steps.
std::unique_ptr<Trainer> trainer_with_batches(int batches) {
  auto graph = std::make_shared<Graph>();
  const Op op = graph->define({
      .name = "step",
      .inputs = {{"x", {}}},
      .body =
          [](const std::vector<at::Tensor>& x) {
            return NamedTensors{{"y", x[0] + 1}};
          },
      .feeder = [batches]() mutable -> std::optional<std::vector<at::Tensor>> {
        if (batches-- == 0) return std::nullopt;
        return std::vector<at::Tensor>{at::zeros({})};
      },
  });
  auto trainer = std::make_unique<Trainer>(graph);
  trainer->set_train_op(op);
  return trainer;
}

TEST(TrainerEventsTest, EndOfDataInMidEpochEndsTheEpochAndTheLoop) {
  const Outcome outcome = train(*trainer_with_batches(3), {}, two_by_two());
  EXPECT_EQ(outcome.events,
            normal_until("B before_run 2/1/3", {"A after_epoch 2/0/3", "B after_epoch 2/0/3",  //
                                                "A trigger_epoch 2/0/3", "A trigger 2/0/3",    //
                                                "B trigger_epoch 2/0/3", "B trigger 2/0/3",    //
                                                "A after_train 2/0/3", "B after_train 2/0/3"}));
  EXPECT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.log, HasSubstr("The data ended 1 step into epoch 2, which ends here."));
  EXPECT_THAT(outcome.log, HasSubstr("Training was stopped: The input source has no more data."));
}

TEST(TrainerEventsTest, EndOfDataBetweenEpochsEndsTheLoopAlone) {
  EXPECT_EQ(train(*trainer_with_batches(2), {}, two_by_two()).events,
            normal_until("B before_epoch 2/1/2", {"A before_run 2/0/2", "B before_run 2/0/2",  //
                                                  "A after_train 2/-1/2", "B after_train 2/-1/2"}));
}

TEST(TrainerEventsTest, OtherProcessesThanTheChiefSkipItsCallbacks) {
  const EventLog log = make_event_log();
  StepTrainer trainer([](StepTrainer& self) { self.hooked_sess().run(Op::nothing()); },
                      /*is_chief=*/false);
  EventRecorder everywhere(log, "A");
  everywhere.set_chief_only(false);
  const std::string text = stdout_of([&] {
    trainer.train({
        .callbacks = {std::move(everywhere), EventRecorder(log, "chief")},
        .session_init = DictRestore({}),
        .steps_per_epoch = 1,
        .max_epoch = 1,
    });
  });
  EXPECT_THAT(*log, ElementsAre("A setup_graph 0/-1/0", "A before_train 0/-1/0",  //
                                "A before_epoch 1/-1/0",                          //
                                "A before_run 1/0/0", "A after_run 1/0/1", "A trigger_step 1/0/1",
                                "A after_epoch 1/0/1", "A trigger_epoch 1/0/1", "A trigger 1/0/1",
                                "A after_train 1/0/1"));
  EXPECT_THAT(text, HasSubstr("EventRecorder runs in the chief process alone; skipped here."));
  EXPECT_THAT(text, HasSubstr("Variables are restored in the chief process alone."));
}

}  // namespace
}  // namespace tensorpack
