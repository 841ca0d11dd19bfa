// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/hyper_param_setter.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/human_hyper_param_setter.h"
#include "tensorpack/callbacks/scheduled_hyper_param_setter.h"
#include "tensorpack/callbacks/stat_monitor_param_setter.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/callbacks/report_errors.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::ThrowsMessage;

// A parameter that writes down every assignment: (global_step, value).
struct Assignments {
  explicit Assignments(FakeTrainer& trainer, double first = 1) : trainer(trainer), value(first) {}

  ObjAttrParam param() {
    return ObjAttrParam(
        "knob", [this] { return value; },
        [this](double next) {
          value = next;
          all.emplace_back(trainer.global_step(), next);
        });
  }

  FakeTrainer& trainer;
  double value;
  std::vector<std::pair<int64_t, double>> all;
};

template <typename MakeSetter>
std::vector<std::pair<int64_t, double>> assignments(LoopState loop, const MakeSetter& make) {
  FakeTrainer trainer(loop);
  Assignments seen(trainer);
  stdout_of([&] { trainer.train(OwnedList<Callback>(make(seen.param()))); });
  return seen.all;
}

const ScheduledHyperParamSetter::Points kPoints = {{10, 0.3}, {20, 0.4}, {30, 0.5}};

TEST(ScheduledHyperParamSetterTest, AssignsAtItsPointsAndNowhereElse) {
  EXPECT_THAT(assignments({.steps_per_epoch = 1, .max_epoch = 50},
                          [](ObjAttrParam param) {
                            return ScheduledHyperParamSetter(std::move(param), kPoints);
                          }),
              ElementsAre(Pair(10, 0.3), Pair(20, 0.4), Pair(30, 0.5)));
}

TEST(ScheduledHyperParamSetterTest, ReportsTheValueThatEachEpochHad) {
  for (const bool step_based : {false, true}) {
    FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 4});
    double knob = 1;
    stdout_of([&] {
      trainer.train({ScheduledHyperParamSetter(ObjAttrParam("knob", knob), {{0, 0.5}, {2, 0.25}},
                                               {.step_based = step_based})});
    });
    // After a step, the value is that of the next one.
    const double at_two = step_based ? 0.25 : 0.5;
    EXPECT_THAT(trainer.monitors().get_history("knob"),
                ElementsAre(Pair(1, 0.5), Pair(2, at_two), Pair(3, 0.25), Pair(4, 0.25)));
  }
}

TEST(HyperParamSetterTest, AnnouncesAChangeOfWhatIsNoVariable) {
  const auto announced = [](AnyHyperParam param) {
    FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 4});
    trainer.graph().create_variable("rate", {}, {.role = VariableRole::kGlobal}, at::kCPU);
    stdout_of([&] {
      trainer.train({ScheduledHyperParamSetter(std::move(param), {{0, 0.5}, {2, 0.25}})});
    });
    return trainer.graph().announced_changes();
  };
  double knob = 1;
  EXPECT_EQ(announced(ObjAttrParam("knob", knob)), 2);
  EXPECT_EQ(announced("rate"), 0);
}

TEST(ScheduledHyperParamSetterTest, WhatTwoSettersSetIsReportedOnce) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 2});
  double knob = 1;
  stdout_of([&] {
    trainer.train({ScheduledHyperParamSetter(ObjAttrParam("knob", knob), {{0, 0.5}}),
                   ScheduledHyperParamSetter(ObjAttrParam("knob", knob), {{1, 0.25}})});
  });
  EXPECT_THAT(trainer.monitors().get_history("knob"), ElementsAre(Pair(1, 0.5), Pair(2, 0.25)));
}

TEST(ScheduledHyperParamSetterTest, ATrainingThatStartsLateGetsWhatThePointsLedTo) {
  const LoopState late{.steps_per_epoch = 1, .starting_epoch = 90, .max_epoch = 95};
  EXPECT_THAT(assignments(late,
                          [](ObjAttrParam param) {
                            return ScheduledHyperParamSetter(std::move(param), kPoints);
                          }),
              ElementsAre(Pair(0, 0.5)));
  EXPECT_THAT(assignments(late,
                          [](ObjAttrParam param) {
                            return ScheduledHyperParamSetter(std::move(param), kPoints,
                                                             {.set_at_beginning = false});
                          }),
              IsEmpty());
}

TEST(ScheduledHyperParamSetterTest, OnlyAStartBetweenPointsIsWarnedOf) {
  const auto log_of_start = [](int64_t epoch) {
    FakeTrainer trainer({.steps_per_epoch = 1, .starting_epoch = epoch, .max_epoch = epoch});
    Assignments seen(trainer);
    return stdout_of([&] { trainer.train(ScheduledHyperParamSetter(seen.param(), kPoints)); });
  };
  EXPECT_THAT(log_of_start(21), Not(HasSubstr("WRN")));  // after epoch 20, which is a point
  EXPECT_THAT(log_of_start(21), HasSubstr("knob changes from 1 to 0.4."));
  EXPECT_THAT(log_of_start(22), HasSubstr("knob is 1 at epoch 21, where the schedule has 0.4."));
}

TEST(ScheduledHyperParamSetterTest, AValueOfZeroIsReplayedToo) {
  EXPECT_THAT(assignments({.steps_per_epoch = 1, .starting_epoch = 9, .max_epoch = 9},
                          [](ObjAttrParam param) {
                            return ScheduledHyperParamSetter(std::move(param), {{3, 0.0}});
                          }),
              ElementsAre(Pair(0, 0.0)));
}

TEST(ScheduledHyperParamSetterTest, InterpolatesBetweenPointsByStep) {
  const auto all = assignments({.steps_per_epoch = 100, .max_epoch = 1}, [](ObjAttrParam param) {
    return ScheduledHyperParamSetter(std::move(param), {{30, 0.3}, {40, 0.4}, {50, 0.5}},
                                     {.interp = Interp::kLinear, .step_based = true});
  });
  ASSERT_EQ(all.size(), 21u);
  EXPECT_EQ(all.front().first, 30);
  EXPECT_THAT(all[15], Pair(45, DoubleNear(0.45, 1e-12)));
  EXPECT_EQ(all.back(), (std::pair<int64_t, double>(50, 0.5)));
}

TEST(ScheduledHyperParamSetterTest, PointZeroIsBeforeTheFirstEpoch) {
  EXPECT_THAT(assignments({.steps_per_epoch = 2, .max_epoch = 2},
                          [](ObjAttrParam param) {
                            return ScheduledHyperParamSetter(std::move(param), {{0, 5}, {1, 6}});
                          }),
              ElementsAre(Pair(0, 5), Pair(2, 6)));
}

TEST(ScheduledHyperParamSetterTest, FunctionsGiveAValueForEveryTime) {
  EXPECT_THAT(assignments({.steps_per_epoch = 1, .max_epoch = 3},
                          [](ObjAttrParam param) {
                            return ScheduledHyperParamSetter(
                                std::move(param), schedule::linear({.from = 4, .length = 4}));
                          }),
              ElementsAre(Pair(0, 4), Pair(1, 3), Pair(2, 2), Pair(3, 1)));
}

TEST(ScheduledHyperParamSetterTest, TellsChangesOncePerEpoch) {
  FakeTrainer trainer({.steps_per_epoch = 4, .max_epoch = 1});
  Assignments seen(trainer);
  const std::string text = stdout_of([&] {
    trainer.train(ScheduledHyperParamSetter(seen.param(), [](double step) { return 10 + step; },
                                            {.step_based = true}));
  });
  EXPECT_THAT(text, HasSubstr("knob changes from 1 to 10."));
  EXPECT_THAT(text, HasSubstr("knob changes from 10 to 11."));
  EXPECT_THAT(text, Not(HasSubstr("to 12.")));
}

TEST(ScheduledHyperParamSetterTest, RefusesSchedulesThatHaveNoMeaning) {
  EXPECT_THAT([] { ScheduledHyperParamSetter("lr", ScheduledHyperParamSetter::Points()); },
              ThrowsMessage<Error>(HasSubstr("the schedule is empty")));
  EXPECT_THAT(
      [] {
        ScheduledHyperParamSetter("lr", {{1, 0.1}, {1, 0.2}});
      },
      ThrowsMessage<Error>(HasSubstr("two values for epoch 1")));
  EXPECT_THROW(ScheduledHyperParamSetter("lr", {{-1, 0.1}, {1, 0.2}}), Error);
}

TEST(GraphVarParamTest, SetsAVariable) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 3});
  stdout_of([&] { trainer.train(ScheduledHyperParamSetter("scratch", {{2, 0.25}})); });
  EXPECT_EQ(trainer.variables().at("scratch").tensor.item<double>(), 0.25);
}

TEST(GraphVarParamTest, SetsEveryElementOfAVariableWithAShape) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 3});
  const VariableOptions zeros{.role = VariableRole::kGlobal};
  Variable& rates = trainer.graph().create_variable("rates", {2, 3}, zeros, at::kCPU);
  trainer.graph().create_variable("none", {0}, zeros, at::kCPU);
  stdout_of([&] { trainer.train(ScheduledHyperParamSetter("rates", {{2, 0.25}})); });
  EXPECT_TRUE(at::equal(rates.tensor, at::full({2, 3}, 0.25F)));
  EXPECT_EQ(trainer.monitors().get_latest("rates"), 0.25);
  GraphVarParam none("none");
  EXPECT_THAT([&] { none.setup(trainer.graph()); },
              ThrowsMessage<Error>(HasSubstr("'none' has the shape [0] and no elements to set")));
}

TEST(GraphVarParamTest, AWrongNameFailsBeforeTheFirstStep) {
  FakeTrainer trainer;
  EXPECT_THAT(
      [&] {
        trainer.train(ScheduledHyperParamSetter("scrach", {{2, 0.25}}));
      },
      ThrowsMessage<Error>(HasSubstr("Did you mean 'scratch'?")));
  EXPECT_EQ(trainer.global_step(), 0);
}

TEST(GraphVarParamTest, IntegersTakeWholeNumbersOnly) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
  EXPECT_THAT(
      [&] {
        stdout_of([&] { trainer.train(ScheduledHyperParamSetter("global_step", {{0, 0.5}})); });
      },
      ThrowsMessage<Error>(HasSubstr("'global_step' holds integers and cannot become 0.5")));
}

TEST(HyperParamSetterWithFuncTest, GetsTheEpochAndTheOldValue) {
  std::vector<int64_t> epochs;
  const auto make = [&](ObjAttrParam param) {
    return HyperParamSetterWithFunc(std::move(param), [&](int64_t epoch, double old) {
      epochs.push_back(epoch);
      return old * 2;
    });
  };
  EXPECT_THAT(assignments({.steps_per_epoch = 1, .max_epoch = 2}, make),
              ElementsAre(Pair(0, 2), Pair(1, 4), Pair(2, 8)));
  EXPECT_THAT(epochs, ElementsAre(0, 1, 2));
}

// The value is in the checkpoint, so that a restart must not compute it again.
TEST(HyperParamSetterWithFuncTest, GoesOnWithTheValueItHad) {
  const auto halved = [](int64_t epoch, double old) { return epoch == 0 ? old : old / 2; };
  FakeTrainer first({.steps_per_epoch = 1, .max_epoch = 2});
  Assignments seen(first);
  stdout_of([&] { first.train(HyperParamSetterWithFunc(seen.param(), halved)); });
  EXPECT_EQ(seen.value, 0.25);

  FakeTrainer second({.steps_per_epoch = 1, .starting_epoch = 3, .max_epoch = 3});
  Assignments resumed(second);
  second.graph().global_step().tensor.fill_(2);
  stdout_of([&] {
    second.setup(HyperParamSetterWithFunc(resumed.param(), halved));
    second.callbacks().load_states(first.callback_states());
    second.set_global_step(2);
    second.callbacks().before_train();
  });
  EXPECT_EQ(resumed.value, 0.25);
}

class HumanHyperParamSetterTest : public testing::Test {
 protected:
  HumanHyperParamSetterTest() {
    stdout_of([&] { set_logger_dir(dir_.path(), LogDirAction::kKeep); });
  }
  ~HumanHyperParamSetterTest() override { reset_logger_dir(); }

  std::string train(Assignments& seen, OwnedList<Callback> others = {}) {
    others.add(HumanHyperParamSetter(seen.param()));
    return stdout_of([&] { trainer_.train(std::move(others)); });
  }

  TempDir dir_;
  FakeTrainer trainer_{{.steps_per_epoch = 1, .max_epoch = 3}};
  Assignments seen_{trainer_};
};

TEST_F(HumanHyperParamSetterTest, FollowsAFileThatIsEditedMeanwhile) {
  train(seen_, ActAt("trigger_step", 1,
                     [&] { std::ofstream(dir_ / "hyper.txt") << "other:3\nknob: 0.125 \n"; }));
  EXPECT_THAT(seen_.all, ElementsAre(Pair(2, 0.125)));
}

TEST_F(HumanHyperParamSetterTest, NothingHappensWithoutTheFile) {
  train(seen_);
  EXPECT_THAT(seen_.all, IsEmpty());
}

TEST_F(HumanHyperParamSetterTest, WhatIsNoNumberIsAWarning) {
  std::ofstream(dir_ / "hyper.txt") << "knob:fast\n";
  EXPECT_THAT(train(seen_), HasSubstr("'knob:fast' in '"));
  EXPECT_THAT(seen_.all, IsEmpty());
}

// echo knob:0.125 >> hyper.txt
TEST_F(HumanHyperParamSetterTest, TheLastLineForANameCounts) {
  std::ofstream(dir_ / "hyper.txt") << "knob:1\nother:3\nknob:2\n";
  train(seen_, ActAt("trigger_step", 1,
                     [&] { std::ofstream(dir_ / "hyper.txt", std::ios::app) << "knob:0.125\n"; }));
  EXPECT_THAT(seen_.all, ElementsAre(Pair(0, 2), Pair(2, 0.125)));
}

TEST_F(HumanHyperParamSetterTest, ALineThatIsNotUnderstoodIsAWarningAndTheOthersCount) {
  for (const char* line :
       {"knob=1", "knob 1", "knob:", ":1", "other:fast", "knob:0,5", "knob:nan"}) {
    std::ofstream(dir_ / "hyper.txt") << "# faster\n\nknob:0.25\n" << line << "\n";
    FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
    Assignments seen(trainer);
    const std::string text =
        stdout_of([&] { trainer.train({HumanHyperParamSetter(seen.param())}); });
    EXPECT_THAT(text, HasSubstr(fmt::format("'{}' in '", line)));
    EXPECT_THAT(text, HasSubstr("is not understood"));
    EXPECT_THAT(text, testing::Not(HasSubstr("faster")));
    EXPECT_THAT(seen.all, ElementsAre(Pair(0, 0.25))) << line;
  }
}

TEST_F(HumanHyperParamSetterTest, AFileWithoutTheNameIsAWarningOnce) {
  std::ofstream(dir_ / "hyper.txt") << "nob:0.5\n";
  const std::string text = train(seen_);
  const std::string told = "sets knob. Write one as knob:0.01.";
  EXPECT_THAT(text, HasSubstr(told));
  EXPECT_EQ(text.find(told), text.rfind(told));
  EXPECT_THAT(seen_.all, IsEmpty());
}

TEST_F(HumanHyperParamSetterTest, AnEmptyFileIsAWarning) {
  std::ofstream(dir_ / "hyper.txt").flush();
  EXPECT_THAT(train(seen_), HasSubstr("sets knob. Write one as knob:0.01."));
}

StatMonitorParamSetter plateau(Assignments& seen, bool reverse = false) {
  return StatMonitorParamSetter(seen.param(), {.stat_name = "error",
                                               .value_func = [](double old) { return old / 10; },
                                               .threshold = 0.1,
                                               .last_k = 3,
                                               .reverse = reverse});
}

TEST(StatMonitorParamSetterTest, ChangesWhenAScalarDoesNotFallAnyMore) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 7});
  Assignments seen(trainer);
  stdout_of([&] {
    trainer.train({report_errors({5, 4, 3, 2.95, 2.92, 2.91, 2.9}), plateau(seen)});
  });
  // 3, 2.95, 2.92 are no progress at step 5; after that three more are needed.
  EXPECT_THAT(seen.all, ElementsAre(Pair(5, DoubleNear(0.1, 1e-12))));
}

TEST(StatMonitorParamSetterTest, WithOneReportEveryOneChangesTheValue) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 2});
  Assignments seen(trainer, 4);
  const auto halve = [](double old) { return old / 2; };
  stdout_of([&] {
    trainer.train({report_errors({5, 1}),
                   StatMonitorParamSetter(
                       seen.param(), {.stat_name = "error", .value_func = halve, .last_k = 1})});
  });
  EXPECT_THAT(seen.all, ElementsAre(Pair(1, 2), Pair(2, 1)));
}

TEST(StatMonitorParamSetterTest, RisingCountsWhenReversed) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 4});
  Assignments seen(trainer);
  stdout_of([&] { trainer.train({report_errors({1, 2, 3, 3.05}), plateau(seen, true)}); });
  EXPECT_THAT(seen.all, IsEmpty());
}

TEST(StatMonitorParamSetterTest, RemembersWhatItHasSeenAcrossARestart) {
  FakeTrainer first({.steps_per_epoch = 1, .max_epoch = 2});
  Assignments before(first);
  stdout_of([&] { first.train({report_errors({3, 3}), plateau(before)}); });
  FakeTrainer second({.steps_per_epoch = 1, .starting_epoch = 3, .max_epoch = 3});
  Assignments after(second);
  stdout_of([&] {
    second.setup({report_errors({0, 0, 3}), plateau(after)});
    second.callbacks().load_states(first.callback_states());
    second.callbacks().before_train();
    second.run_one_epoch(3);
  });
  EXPECT_THAT(after.value, DoubleNear(0.1, 1e-12)) << "the third report of no progress";
}

TEST(StatMonitorParamSetterTest, RefusesOptionsThatHaveNoMeaning) {
  EXPECT_THROW(StatMonitorParamSetter("lr", {.stat_name = "x", .last_k = 3}), Error);
  EXPECT_THROW(StatMonitorParamSetter("lr", {.value_func = [](double x) { return x; }}), Error);
}

}  // namespace
}  // namespace tensorpack
