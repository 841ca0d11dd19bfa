// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/best_saver.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/early_stopping.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_writer.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/callbacks/report_errors.h"
#include "tests/support/capture.h"
#include "tests/support/event_recorder.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

class BestSaverTest : public testing::Test {
 protected:
  std::string train(OwnedList<Callback> callbacks, int64_t epochs) {
    FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = epochs});
    return stdout_of([&] { trainer.train(std::move(callbacks)); });
  }
  int64_t step_of(const std::string& name) const {
    return load_checkpoint(dir_ / name).global_step;
  }

  TempDir dir_;
  BestSaverOptions here_{.checkpoint_dir = dir_.path()};
};

TEST_F(BestSaverTest, KeepsTheSmallestAndTheGreatest) {
  train({report_errors({3, 1, 2}), MinSaver("error", here_), MaxSaver("error", here_)}, 3);
  EXPECT_EQ(step_of("min-error"), 4);
  EXPECT_EQ(load_checkpoint(dir_ / "min-error").variables.at("w").item<float>(), 4);
  EXPECT_EQ(step_of("max-error"), 2);
}

TEST_F(BestSaverTest, TwoWithOneFileAreAnErrorBeforeTheFirstStep) {
  here_.filename = "best";
  EXPECT_THAT(
      [&] {
        train({MinSaver("error", here_), MaxSaver("error", here_)}, 1);
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("[MaxSaver]"),
                                 HasSubstr("best.safetensors' is written by MinSaver, too."))));
  EXPECT_THAT(
      [&] {
        train({MinSaver("error", here_), MinSaver("other", here_)}, 1);
      },
      ThrowsMessage<Error>(HasSubstr("is written by another MinSaver, too.")));
}

TEST_F(BestSaverTest, TheOrderOfCallbacksDoesNotMatter) {
  train({MinSaver("error", here_), report_errors({3, 1, 2})}, 3);
  EXPECT_EQ(step_of("min-error"), 4);
}

TEST_F(BestSaverTest, RemovesWhatAKilledSaveLeft) {
  const fs::path half = dir_ / ".min-error.safetensors.tmp.1.1";
  write_file_atomically(half, "half");
  train({report_errors({1}), MinSaver("error", here_)}, 1);
  EXPECT_FALSE(fs::exists(half));
}

TEST_F(BestSaverTest, ValueAndStepCanBeInTheName) {
  here_.filename = "best-{step}-{value}";
  train({report_errors({3, 0.5}), MinSaver("error", here_)}, 2);
  EXPECT_EQ(step_of("best-2-3"), 2);
  EXPECT_EQ(step_of("best-4-0.5"), 4);
}

TEST_F(BestSaverTest, ANumberThatIsNoneBlocksNothing) {
  train({report_errors({std::nan(""), 2, 3}), MinSaver("error", here_)}, 3);
  EXPECT_EQ(step_of("min-error"), 4);
}

// What a CallbackFactory reports is known when it does.
TEST_F(BestSaverTest, AScalarThatIsNotReportedIsAWarningAndThenAnError) {
  std::string error;
  const std::string log = stdout_of([&] {
    try {
      FakeTrainer({.steps_per_epoch = 2, .max_epoch = 2})
          .train({report_errors({1, 2}), MinSaver("errors", here_)});
    } catch (const Error& thrown) {
      error = thrown.what();
    }
  });
  EXPECT_THAT(log, HasSubstr("'errors' was not reported yet: nothing is saved. Did you mean "
                             "'error'?"));
  EXPECT_THAT(error,
              HasSubstr("[MinSaver] the scalar 'errors' was never reported in this training. "
                        "Did you mean 'error'?"));
  EXPECT_FALSE(fs::exists(dir_ / "min-errors.safetensors"));
}

// Says what it reports, and does so in every second epoch.
class SlowReport final : public Callback {
 public:
  ReportedScalars reports() const override { return {.names = {"error"}, .are_all = true}; }
  void trigger_epoch() override {
    if (epoch_num() % 2 == 0) trainer().monitors().put_scalar("error", 1);
  }
};

TEST_F(BestSaverTest, AScalarThatWouldComeInALaterEpochIsNoError) {
  const std::string log = train({SlowReport(), MinSaver("error", here_)}, 1);
  EXPECT_THAT(log,
              AllOf(HasSubstr("'error' was not reported yet"), Not(HasSubstr("Did you mean"))));
}

// Behind a ModelSaver, whose checkpoint has the best of the epoch before.
TEST_F(BestSaverTest, ARestartDoesNotForgetTheBest) {
  FakeTrainer first({.steps_per_epoch = 2, .max_epoch = 2});
  stdout_of([&] {
    first.train({ModelSaver({.checkpoint_dir = dir_.path()}), report_errors({3, 1}),
                 MinSaver("error", here_)});
  });
  FakeTrainer second({.steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 3});
  stdout_of([&] {
    second.setup({report_errors({0, 0, 2}), MinSaver("error", here_)});
    second.callbacks().load_states(load_checkpoint(dir_ / "model-4").extra);
    second.graph().global_step().tensor.fill_(4);
    second.callbacks().before_train();
    second.run_one_epoch(3);
  });
  EXPECT_EQ(step_of("min-error"), 4) << "2 is not better than 1";
}

// The second is not written: its directory is gone. The third is worse, but better than the first.
TEST_F(BestSaverTest, WhatCannotBeWrittenIsNotTheBest) {
  const fs::path gone = dir_ / "gone";
  CallbackFactory meddle({.trigger = [gone](Callback& self) {
    wait_for_checkpoints();
    if (self.epoch_num() == 2) fs::remove_all(gone);
    if (self.epoch_num() == 3) fs::create_directories(gone);
  }});
  const std::string output = train({report_errors({3, 1, 2}), std::move(meddle),
                                    MinSaver("error", {.checkpoint_dir = gone, .retries = 0})},
                                   3);
  EXPECT_THAT(output, HasSubstr("[MinSaver] the checkpoint of step 4 was not saved"));
  EXPECT_EQ(step_of("gone/min-error"), 6);
}

TEST_F(BestSaverTest, NeedsADirectoryAndAName) {
  reset_logger_dir();
  EXPECT_THAT([&] { train({MinSaver("error")}, 1); },
              ThrowsMessage<Error>(HasSubstr("[MinSaver] there is no directory to save to")));
  EXPECT_THROW(MaxSaver(""), Error);
}

TEST(EarlyStoppingTest, EndsWhenPatienceIsOverAndTheEpochIsFinished) {
  const EventLog log = make_event_log();
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 9});
  stdout_of([&] {
    trainer.train({report_errors({5, 4, 4.5, 4.2, 9, 9, 9, 9, 9}),
                   EarlyStopping({.stat_name = "error", .patience = 2}), EventRecorder(log)});
  });
  EXPECT_EQ(trainer.global_step(), 4);
  EXPECT_THAT(*log, Contains("trigger_epoch 4/0/4")) << "those behind it had their turn";
}

TEST(EarlyStoppingTest, SmallGainsDoNotCount) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 5});
  stdout_of([&] {
    trainer.train({report_errors({5, 4.9, 4.8, 4.7, 4.6}),
                   EarlyStopping({.stat_name = "error", .patience = 2, .threshold = 1})});
  });
  EXPECT_EQ(trainer.global_step(), 3);
}

TEST(EarlyStoppingTest, RisingCountsWhenReversed) {
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 4});
  stdout_of([&] {
    trainer.train({report_errors({1, 2, 3, 4}),
                   EarlyStopping({.stat_name = "error", .patience = 1, .reverse = true})});
  });
  EXPECT_EQ(trainer.global_step(), 4);
}

TEST(EarlyStoppingTest, RemembersAcrossARestart) {
  const EarlyStoppingOptions options{.stat_name = "error", .patience = 2};
  FakeTrainer first({.steps_per_epoch = 1, .max_epoch = 2});
  stdout_of([&] { first.train({report_errors({1, 2}), EarlyStopping(options)}); });
  FakeTrainer second({.steps_per_epoch = 1, .starting_epoch = 3, .max_epoch = 3});
  stdout_of([&] {
    second.setup({report_errors({0, 0, 3}), EarlyStopping(options)});
    second.callbacks().load_states(first.callback_states());
    second.callbacks().before_train();
    EXPECT_THROW(second.run_one_epoch(3), StopTraining);
  });
}

TEST(EarlyStoppingTest, RefusesOptionsThatHaveNoMeaning) {
  EXPECT_THROW(EarlyStopping({.patience = 1}), Error);
  EXPECT_THROW(EarlyStopping({.stat_name = "x", .patience = 0}), Error);
}

}  // namespace
}  // namespace tensorpack
