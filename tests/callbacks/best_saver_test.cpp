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
#include "tensorpack/utils/string.h"
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
  ReportedScalars reports() const override {
    return {.names = {"error", "errors"}, .are_all = true};
  }
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

// Trains two epochs, of which the second is the best, and a third one from the checkpoint of the
// second, after `meddle`; returns what it logs.
class ResumedBestSaverTest : public BestSaverTest {
 protected:
  std::string resume(bool saver_is_first, const std::function<void()>& meddle) {
    OwnedList<Callback> callbacks;
    callbacks.add(report_errors({3, 1}));
    if (saver_is_first) callbacks.add(ModelSaver({.checkpoint_dir = dir_.path()}));
    callbacks.add(MinSaver("error", here_));
    if (!saver_is_first) callbacks.add(ModelSaver({.checkpoint_dir = dir_.path()}));
    train(std::move(callbacks), 2);
    meddle();
    return resume_after_epoch_2({report_errors({0, 0, 2}), MinSaver("error", here_)});
  }

  std::string resume_after_epoch_2(OwnedList<Callback> callbacks) {
    FakeTrainer trainer({.steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 3});
    return stdout_of([&] {
      trainer.setup(std::move(callbacks));
      const Checkpoint checkpoint = load_checkpoint(dir_ / "model-4");
      trainer.callbacks().load_states(checkpoint.extra);
      trainer.graph().global_step().tensor.fill_(4);
      trainer.graph().variables().at("w").tensor.fill_(checkpoint.variables.at("w").item());
      trainer.callbacks().before_train();
      trainer.run_one_epoch(3);
      trainer.callbacks().after_train();
    });
  }
  double best_in(const std::string& name) const {
    return parse_exact_text(load_checkpoint(dir_ / name).extra.at("best_value"));
  }

  const fs::path file_ = dir_ / "min-error.safetensors";
};

// As if the process had been killed between the two files.
TEST_F(ResumedBestSaverTest, AFileThatIsNotThereIsWrittenAgainFromTheCheckpointOfItsStep) {
  for (const bool saver_is_first : {true, false}) {
    const std::string log = resume(saver_is_first, [&] { fs::remove(file_); });
    EXPECT_THAT(log,
                HasSubstr("'min-error.safetensors' was not written when the run before ended"));
    EXPECT_EQ(step_of("min-error"), 4) << "2 is not better than 1";
    const Checkpoint best = load_checkpoint(file_);
    EXPECT_EQ(best.epoch_num, 2);
    EXPECT_EQ(best.variables.at("w").item<float>(), 4);
    EXPECT_EQ(best_in("min-error"), 1);
  }
}

TEST_F(ResumedBestSaverTest, SoIsTheFileOfTheBestBefore) {
  for (const bool saver_is_first : {true, false}) {
    resume(saver_is_first, [&] {
      Checkpoint before = load_checkpoint(file_);
      before.global_step = 2;
      before.extra["best_value"] = exact_text(3);
      save_checkpoint(file_, before);
    });
    EXPECT_EQ(step_of("min-error"), 4);
    EXPECT_EQ(best_in("min-error"), 1);
  }
}

// Of a run that went on after the checkpoint, and trained steps that are trained again now.
TEST_F(ResumedBestSaverTest, AFileOfALaterStepIsNotBelieved) {
  resume(true, [&] {
    Checkpoint later = load_checkpoint(file_);
    later.global_step = 6;
    later.extra["best_value"] = exact_text(0.5);
    save_checkpoint(file_, later);
  });
  EXPECT_EQ(step_of("min-error"), 4) << "which is the best again";
}

TEST_F(ResumedBestSaverTest, ABestOfAnEarlierStepWithoutItsFileIsForgotten) {
  const std::string log = resume(true, [&] {
    Checkpoint checkpoint = load_checkpoint(dir_ / "model-4");
    checkpoint.extra["callback/MinSaver"] =
        R"({"value":"0x1p-1","step":2,"epoch":1,"file":"min-error.safetensors"})";
    save_checkpoint(dir_ / "model-4.safetensors", checkpoint);
    fs::remove(file_);
  });
  EXPECT_THAT(log, HasSubstr("the best 'error' so far, 0.5, is forgotten: "
                             "'min-error.safetensors' is not there."));
  EXPECT_EQ(step_of("min-error"), 6) << "the first that there is";
}

TEST_F(ResumedBestSaverTest, ANameLeadsNowhereElse) {
  resume(true, [&] {
    Checkpoint checkpoint = load_checkpoint(dir_ / "model-4");
    checkpoint.extra["callback/MinSaver"] =
        R"({"value":"0x1p+0","step":4,"epoch":2,"file":"../../min-error.safetensors"})";
    save_checkpoint(dir_ / "model-4.safetensors", checkpoint);
  });
  EXPECT_EQ(step_of("min-error"), 4);
}

// Format 2 had the value alone.
TEST_F(ResumedBestSaverTest, AStateOfFormat2IsRead) {
  const auto as_format_2 = [&](const char* value) {
    Checkpoint checkpoint = load_checkpoint(dir_ / "model-4");
    checkpoint.extra["callback/MinSaver"] = value;
    save_checkpoint(dir_ / "model-4.safetensors", checkpoint);
  };
  resume(true, [&] { as_format_2("0x1p+0"); });
  EXPECT_EQ(step_of("min-error"), 4);
  resume(true, [&] { as_format_2("0x1.8p+1"); });  // of the epoch before: the file knows better
  EXPECT_EQ(step_of("min-error"), 4);
  resume(true, [&] {
    as_format_2("0x1p+0");
    fs::remove(file_);
  });
  EXPECT_EQ(step_of("min-error"), 6) << "a value without a file is forgotten";
}

// The file of the second epoch cannot be written. A checkpoint of the third that said it was there
// would keep every later epoch from being the best.
TEST_F(BestSaverTest, ACheckpointOfALaterStepNamesNoFileThatWasNotWritten) {
  const fs::path gone = dir_ / "gone";
  CallbackFactory meddle({.trigger = [gone](Callback& self) {
    wait_for_checkpoints();
    if (self.epoch_num() == 2) fs::remove_all(gone);
  }});
  train({report_errors({3, 1, 4}), std::move(meddle), ModelSaver({.checkpoint_dir = dir_.path()}),
         MinSaver("error", {.checkpoint_dir = gone, .retries = 0})},
        3);
  EXPECT_THAT(load_checkpoint(dir_ / "model-4").extra.at("callback/MinSaver"),
              AllOf(HasSubstr(R"("step":4)"), HasSubstr(R"("value":"0x1p+0")")));
  EXPECT_THAT(load_checkpoint(dir_ / "model-6").extra.at("callback/MinSaver"),
              AllOf(HasSubstr(R"("step":2)"), HasSubstr(R"("value":"0x1.8p+1")")));
}

TEST_F(BestSaverTest, ANaNInAVariableEndsTheTraining) {
  CallbackFactory make_nan({.trigger = [](Callback& self) {
    if (self.epoch_num() == 2) self.graph().variables().at("w").tensor.fill_(std::nan(""));
  }});
  EXPECT_THAT(
      [&] {
        train({report_errors({3, 2, 4, 4}), std::move(make_nan), MinSaver("error", here_)}, 4);
      },
      ThrowsMessage<Error>(HasSubstr("[MinSaver] the checkpoint of step 4 was not saved")));
  EXPECT_EQ(step_of("min-error"), 2);
}

// No ModelSaver refuses it as well.
TEST_F(BestSaverTest, ANaNInTheLastEpochIsAnErrorToo) {
  for (const bool background : {true, false}) {
    CallbackFactory make_nan({.trigger = [](Callback& self) {
      if (self.epoch_num() == 2) self.graph().variables().at("w").tensor.fill_(std::nan(""));
    }});
    BestSaverOptions options = here_;
    options.background = background;
    EXPECT_THAT(
        [&] {
          train({report_errors({3, 2}), std::move(make_nan), MinSaver("error", options)}, 2);
        },
        ThrowsMessage<Error>(HasSubstr("[MinSaver] the checkpoint of step 4 was not saved")));
    EXPECT_EQ(step_of("min-error"), 2);
  }
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
