// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/trainer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/call_scope.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/event_recorder.h"
#include "tests/train/step_trainer.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Opens what is called once, to call it twice.
class OpenTrainer final : public Trainer {
 public:
  OpenTrainer() { set_train_op(Op::nothing()); }
  using Trainer::callbacks;
  using Trainer::initialize_hooks;
};

TEST(TrainerTest, EachPartOfATrainingIsCalledOnce) {
  OpenTrainer trainer;
  trainer.setup_callbacks({}, {});
  EXPECT_THAT([&] { trainer.setup_callbacks({}, {}); },
              ThrowsMessage<Error>(HasSubstr("setup_callbacks() was called twice")));
  trainer.initialize({}, {});
  EXPECT_THAT([&] { trainer.initialize({}, {}); },
              ThrowsMessage<Error>(HasSubstr("initialize() was called twice")));
  EXPECT_THAT([&] { trainer.initialize_hooks(); },
              ThrowsMessage<Error>(HasSubstr("initialize_hooks() was called twice")));
  trainer.main_loop({.steps_per_epoch = 1, .max_epoch = 1});
  EXPECT_THAT([&] { trainer.main_loop({.steps_per_epoch = 1, .max_epoch = 1}); },
              ThrowsMessage<Error>(HasSubstr("main_loop() was called twice")));
}

TEST(TrainerTest, ATrainerTrainsOnce) {
  OpenTrainer trainer;
  trainer.train({.steps_per_epoch = 1, .max_epoch = 1});
  EXPECT_THAT([&] { trainer.train({.steps_per_epoch = 1, .max_epoch = 1}); },
              ThrowsMessage<Error>(HasSubstr("A trainer trains once: make another one.")));
}

TEST(TrainerTest, PartsOutOfOrderAreErrors) {
  OpenTrainer trainer;
  EXPECT_THAT([&] { trainer.initialize({}, {}); },
              ThrowsMessage<Error>(HasSubstr("Call setup_callbacks() first")));
  EXPECT_THAT([&] { trainer.main_loop({}); },
              ThrowsMessage<Error>(HasSubstr("Call initialize() first")));
  EXPECT_THAT([&] { trainer.hooked_sess(); },
              ThrowsMessage<Error>(HasSubstr("the session exists from initialize() on")));
  EXPECT_THAT([&] { trainer.monitors(); },
              ThrowsMessage<Error>(HasSubstr("they exist from setup_callbacks() on")));
}

TEST(TrainerTest, WithoutAnIterationThereIsAnError) {
  EXPECT_THAT([] { Trainer().train({.steps_per_epoch = 1, .max_epoch = 1}); },
              ThrowsMessage<Error>(HasSubstr("Call set_train_op(), or override run_step().")));
}

TEST(TrainerTest, StepsPerEpochMustBeGiven) {
  EXPECT_THAT([] { Trainer().train({}); },
              ThrowsMessage<Error>(HasSubstr("[train] steps_per_epoch is not set.")));
  EXPECT_THAT([] { Trainer().train({.steps_per_epoch = -1}); },
              ThrowsMessage<Error>(HasSubstr("steps_per_epoch -1")));
}

TEST(TrainerTest, RegisteringAfterSetupIsAnError) {
  OpenTrainer trainer;
  EXPECT_TRUE(trainer.register_callback(EventRecorder(make_event_log())));
  trainer.setup_callbacks({}, {});
  EXPECT_THAT([&] { trainer.register_callback(EventRecorder(make_event_log())); },
              ThrowsMessage<Error>(HasSubstr("EventRecorder comes too late")));
}

TEST(TrainerTest, NullCallbackIsAnError) {
  Trainer trainer;
  EXPECT_THAT([&] { trainer.register_callback(nullptr); },
              ThrowsMessage<Error>(HasSubstr("[register_callback] the callback is null")));
}

TEST(TrainerTest, RegisteredCallbacksComeBeforeThoseOfTrain) {
  OpenTrainer trainer;
  const EventLog log = make_event_log();
  trainer.register_callback(EventRecorder(log, "registered"));
  trainer.train({
      .callbacks = {EventRecorder(log, "user")},
      .extra_callbacks = OwnedList<Callback>(EventRecorder(log, "extra")),
      .steps_per_epoch = 1,
      .max_epoch = 0,
  });
  EXPECT_THAT(*log, ElementsAre("registered setup_graph 0/-1/0", "user setup_graph 0/-1/0",
                                "extra setup_graph 0/-1/0",  //
                                "registered before_train 0/-1/0", "user before_train 0/-1/0",
                                "extra before_train 0/-1/0",  //
                                "registered after_train 0/-1/0", "user after_train 0/-1/0",
                                "extra after_train 0/-1/0"));
}

TEST(TrainerTest, MonitorsComeAfterAllCallbacks) {
  OpenTrainer trainer;
  trainer.register_callback(EventRecorder(make_event_log()));
  trainer.train_with_defaults({
      .callbacks = {ActAt("trigger_epoch", 0, [] {})},
      .monitors = OwnedList<MonitorBase>(),
      .steps_per_epoch = 1,
      .max_epoch = 0,
  });
  std::vector<std::string> names;
  for (const Callback& callback : trainer.callbacks().all()) names.push_back(callback.name());
  EXPECT_THAT(names, ElementsAre("EventRecorder", "MaintainStepCounter", "ActAt", "StopAtNaN",
                                 "ProgressBar", "MergeAllSummaries", "RunMonitors"));
}

// Keeps the scalars of every epoch.
class Collector final : public MonitorBase {
 public:
  explicit Collector(EventLog log) : log_(std::move(log)) {}
  void process_scalar(const std::string& name, double value, const LoopState&) override {
    log_->push_back(fmt::format("{} {}", name, value));
  }
  void trigger_epoch(const LoopState& loop) override {
    log_->push_back(fmt::format("epoch {}", loop.epoch_num));
  }

 private:
  EventLog log_;
};

TEST(TrainerTest, AnEpochStoppedByACallbackStillReachesTheMonitors) {
  OpenTrainer trainer;
  const EventLog log = make_event_log();
  trainer.train({
      .callbacks = {ActAt("trigger_epoch", 0,
                          [&] {
                            trainer.monitors().put_scalar("score", 7);
                            throw StopTraining("good enough");
                          })},
      .monitors = OwnedList<MonitorBase>(Collector(log)),
      .steps_per_epoch = 1,
      .max_epoch = 3,
  });
  EXPECT_THAT(*log, ElementsAre("score 7", "epoch 1"));
}

TEST(TrainerTest, LoopAttributesFollowTheOptions) {
  OpenTrainer trainer;
  trainer.train({.steps_per_epoch = 3, .starting_epoch = 2, .max_epoch = 4});
  EXPECT_EQ(trainer.steps_per_epoch(), 3);
  EXPECT_EQ(trainer.starting_epoch(), 2);
  EXPECT_EQ(trainer.max_epoch(), 4);
  EXPECT_EQ(trainer.epoch_num(), 4);
  EXPECT_EQ(trainer.local_step(), 2);
  EXPECT_EQ(trainer.global_step(), 9);
  EXPECT_TRUE(trainer.is_chief());
}

TEST(TrainerTest, ARestoredStepCounterGoesOn) {
  OpenTrainer trainer;
  const std::string text = stdout_of([&] {
    trainer.train({
        .session_init = DictRestore({{"global_step", at::full({}, 40, at::kLong)}}),
        .steps_per_epoch = 2,
        .max_epoch = 1,
    });
  });
  EXPECT_EQ(trainer.global_step(), 42);
  EXPECT_THAT(text, HasSubstr("Start training with global_step = 40."));
}

TEST(TrainerTest, ACallbackMaySetTheStepBeforeTraining) {
  OpenTrainer trainer;
  int64_t seen = -1;
  const auto set_step = [&] {
    trainer.variables().at("global_step").assign(at::full({}, 40, at::kLong));
  };
  const auto look = [&] { seen = trainer.global_step(); };
  stdout_of([&] {
    trainer.train(
        {.callbacks = {ActAt("before_train", 0, set_step), ActAt("before_epoch", 0, look)},
         .steps_per_epoch = 2,
         .max_epoch = 1});
  });
  EXPECT_EQ(seen, 40);
  EXPECT_EQ(trainer.global_step(), 42);
}

TEST(TrainerTest, NothingIsDefinedOnceTheLoopRuns) {
  OpenTrainer trainer;
  EXPECT_THAT(
      [&] {
        trainer.train({
            .callbacks = {ActAt("before_train", 0,
                                [&] {
                                  trainer.graph().define({.name = "late", .body = [](const auto&) {
                                                            return NamedTensors();
                                                          }});
                                })},
            .steps_per_epoch = 1,
            .max_epoch = 1,
        });
      },
      ThrowsMessage<Error>(HasSubstr("op 'late' is defined after the graph was made final")));
}

// Two groups of hooks: `own` joins runs of another session alone.
class TwoGroups final : public Trainer {
 public:
  explicit TwoGroups(Hook& own) : own_(own) { set_train_op(Op::nothing()); }
  void run_step() override {
    second_->run(Op::nothing());
    Trainer::run_step();
  }

 protected:
  void initialize_hooks() override {
    Trainer::initialize_hooks();
    second_ = std::make_unique<HookedSession>(sess(), std::vector<Hook*>{&own_});
  }

 private:
  Hook& own_;
  std::unique_ptr<HookedSession> second_;
};

TEST(TrainerTest, SeveralGroupsOfHooksAreAnOverrideAway) {
  struct Counter final : Hook {
    int runs = 0;
    void after_run(RunContext&, const FetchedValues&) override { ++runs; }
  } counter;
  TwoGroups trainer(counter);
  trainer.train({.steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_EQ(counter.runs, 3);
  EXPECT_EQ(trainer.global_step(), 3);
}

TEST(TrainerTest, TheGraphMayBeBuiltBeforeTheTrainer) {
  auto graph = std::make_shared<Graph>();
  const Op op = graph->define({.name = "count", .body = [&](const auto&) {
                                 CallScope call(*graph);
                                 get_variable("w", {}).detach().add_(1);
                                 return NamedTensors();
                               }});
  Trainer trainer(graph);
  trainer.set_train_op(op);
  const std::string text =
      stdout_of([&] { trainer.train({.steps_per_epoch = 5, .max_epoch = 2}); });
  EXPECT_EQ(graph->variables().at("w").tensor.item<float>(), 10);
  EXPECT_THAT(text, HasSubstr("Number of trainable variables: 1; elements: 1; size: 4 B"));
}

}  // namespace
}  // namespace tensorpack
