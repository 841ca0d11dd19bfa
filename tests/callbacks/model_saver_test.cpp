// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/model_saver.h"

#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_writer.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Key;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

// Makes the directory unusable in some epochs.
class ReplaceDirectoryByFile final : public Callback {
 public:
  ReplaceDirectoryByFile(fs::path dir, std::set<int64_t> epochs)
      : dir_(std::move(dir)), epochs_(std::move(epochs)) {}
  void before_epoch() override {
    wait_for_checkpoints();
    if (epochs_.contains(epoch_num())) {
      fs::remove_all(dir_);
      write_file_atomically(dir_, "");
    } else if (!fs::is_directory(dir_)) {
      fs::remove(dir_);
    }
  }

 private:
  fs::path dir_;
  std::set<int64_t> epochs_;
};

class ModelSaverTest : public testing::Test {
 protected:
  TempDir dir_;
  fs::path checkpoints_ = dir_ / "checkpoints";
  FakeTrainer trainer_{{.steps_per_epoch = 2, .max_epoch = 3}};
};

TEST_F(ModelSaverTest, SavesEveryEpochWithStepAndEpoch) {
  stdout_of([&] { trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_})}); });
  const Checkpoint latest = load_checkpoint(checkpoints_);
  EXPECT_EQ(latest.global_step, 6);
  EXPECT_EQ(latest.epoch_num, 3);
  EXPECT_EQ(latest.variables.at("w").item<float>(), 6);
  EXPECT_EQ(load_checkpoint(checkpoints_ / "model-2").variables.at("w").item<float>(), 2);
}

TEST_F(ModelSaverTest, LeavesLocalVariablesOut) {
  stdout_of([&] { trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_})}); });
  EXPECT_THAT(load_checkpoint(checkpoints_).variables,
              UnorderedElementsAre(Key("w"), Key("global_step")));
}

TEST_F(ModelSaverTest, TellsWhatOnlyTrainingNeeds) {
  stdout_of([&] { trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_})}); });
  EXPECT_THAT(load_checkpoint(checkpoints_).training_only, UnorderedElementsAre("global_step"));
}

TEST_F(ModelSaverTest, SavesThoughALaterCallbackOfTheEpochFails) {
  stdout_of([&] {
    EXPECT_THROW(trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_}),
                                 ActAt("trigger_epoch", 0, [] { throw std::bad_alloc(); })}),
                 std::bad_alloc);
  });
  EXPECT_EQ(load_checkpoint(checkpoints_).global_step, 2);
}

// A power cut between the two would lose rows that the resumed training does not write again.
TEST_F(ModelSaverTest, NumbersAreOnTheDiskBeforeTheirCheckpoint) {
  class Watch final : public MonitorBase {
   public:
    Watch(fs::path dir, std::vector<bool>& seen) : dir_(std::move(dir)), seen_(&seen) {}
    void flush() override {
      wait_for_checkpoints();
      seen_->push_back(fs::exists(dir_ / "model-2.safetensors"));
    }

   private:
    fs::path dir_;
    std::vector<bool>* seen_;
  };
  std::vector<bool> seen;
  stdout_of([&] {
    trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_})}, {Watch(checkpoints_, seen)});
  });
  EXPECT_THAT(seen, testing::ElementsAre(false, true, true));
}

TEST_F(ModelSaverTest, WhatIsTrainedWhileACheckpointIsWrittenIsNotInIt) {
  for (const bool background : {true, false}) {
    FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 20});
    const fs::path dir = dir_ / (background ? "background" : "foreground");
    stdout_of([&] {
      trainer.train(
          {ModelSaver({.max_to_keep = 0, .checkpoint_dir = dir, .background = background})});
    });
    for (int64_t step = 2; step <= 40; step += 2) {
      const Checkpoint saved = load_checkpoint(dir / fmt::format("model-{}", step));
      EXPECT_EQ(saved.variables.at("w").item<float>(), static_cast<float>(step));
      EXPECT_EQ(saved.variables.at("global_step").item<int64_t>(), step);
    }
  }
}

TEST_F(ModelSaverTest, KeepsTheLastOnes) {
  stdout_of(
      [&] { trainer_.train({ModelSaver({.max_to_keep = 2, .checkpoint_dir = checkpoints_})}); });
  EXPECT_FALSE(fs::exists(checkpoints_ / "model-2.safetensors"));
  EXPECT_TRUE(fs::exists(checkpoints_ / "model-4.safetensors"));
  EXPECT_TRUE(fs::exists(checkpoints_ / "model-6.safetensors"));
}

TEST_F(ModelSaverTest, SavesToTheLogDirectoryByDefault) {
  stdout_of([&] {
    set_logger_dir(dir_.path(), LogDirAction::kKeep);
    trainer_.train({ModelSaver()});
    reset_logger_dir();
  });
  EXPECT_TRUE(fs::exists(dir_ / "model-6.safetensors"));
}

TEST_F(ModelSaverTest, NeedsADirectoryAtSetup) {
  reset_logger_dir();
  EXPECT_THAT([&] { trainer_.setup({ModelSaver()}); },
              ThrowsMessage<Error>(HasSubstr("Call set_logger_dir() before training")));
}

TEST_F(ModelSaverTest, AnUnwritableDirectoryIsAnErrorBeforeTheFirstStep) {
  write_file_atomically(checkpoints_, "not a directory");
  EXPECT_THAT([&] { trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_})}); },
              ThrowsMessage<Error>(HasSubstr("[ModelSaver] cannot write to the directory")));
  EXPECT_EQ(trainer_.global_step(), 0);
}

TEST_F(ModelSaverTest, AFailureWhileTrainingIsLoggedAndTrainingGoesOn) {
  const std::string text = stdout_of([&] {
    trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_, .retries = 0}),
                    ReplaceDirectoryByFile(checkpoints_, {1, 2})});
  });
  EXPECT_THAT(text, HasSubstr("the checkpoint of step 2 was not saved"));
  EXPECT_THAT(text, HasSubstr("the checkpoint of step 4 was not saved"));
  EXPECT_EQ(load_checkpoint(checkpoints_).global_step, 6) << "the directory is made again";
}

TEST_F(ModelSaverTest, AFailureOfTheLastOneIsAnErrorAfterTraining) {
  stdout_of([&] {
    EXPECT_THAT(
        [&] {
          trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_, .retries = 0}),
                          ReplaceDirectoryByFile(checkpoints_, {3})});
        },
        ThrowsMessage<Error>(HasSubstr("[ModelSaver] the checkpoint of step 6 was not saved")));
  });
  EXPECT_EQ(trainer_.global_step(), 6);
}

TEST_F(ModelSaverTest, WhatFailsIsTriedAgain) {
  const std::string text = stdout_of([&] {
    trainer_.train(
        {ModelSaver({.checkpoint_dir = checkpoints_, .retries = 3, .seconds_between_retries = 0}),
         ReplaceDirectoryByFile(checkpoints_, {1})});
  });
  size_t tries = 0;
  for (size_t at = text.find("tried again"); at != std::string::npos;
       at = text.find("tried again", at + 1)) {
    ++tries;
  }
  EXPECT_EQ(tries, 3);
}

CallbackFactory make_nan(int64_t epoch) {
  return CallbackFactory({.trigger = [epoch](Callback& self) {
    if (self.epoch_num() == epoch) self.graph().variables().at("w").tensor.fill_(std::nan(""));
  }});
}

TEST_F(ModelSaverTest, ANaNIsNotSavedAndEndsTheTraining) {
  for (const bool background : {true, false}) {
    FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 1000});
    const fs::path dir = dir_ / (background ? "background" : "waiting");
    stdout_of([&] {
      EXPECT_THAT(
          [&] {
            trainer.train(
                {make_nan(3), ModelSaver({.checkpoint_dir = dir, .background = background})});
          },
          ThrowsMessage<Error>(AllOf(
              HasSubstr("[ModelSaver] the checkpoint of step 6 was not saved: 1 variable of it has "
                        "NaN or infinite numbers (w)."),
              HasSubstr("Training ends"), HasSubstr("in after_triggers() of ModelSaver"))));
    });
    EXPECT_LE(trainer.epoch_num(), 4) << "not later than when the next would be saved";
    EXPECT_EQ(load_checkpoint(dir).global_step, 4);
    EXPECT_FALSE(fs::exists(dir / "model-6.safetensors"));
  }
}

TEST_F(ModelSaverTest, ANaNInTheLastOneIsAnErrorAfterTraining) {
  stdout_of([&] {
    EXPECT_THAT(
        [&] {
          trainer_.train({make_nan(3), ModelSaver({.checkpoint_dir = checkpoints_})});
        },
        ThrowsMessage<Error>(HasSubstr("(w). The one before stays the newest.")));
  });
  EXPECT_EQ(load_checkpoint(checkpoints_).global_step, 4);
}

TEST_F(ModelSaverTest, ANaNThatIsMeantIsSaved) {
  stdout_of([&] {
    trainer_.train(
        {make_nan(2), ModelSaver({.checkpoint_dir = checkpoints_, .may_be_non_finite = {"^w$"}})});
  });
  EXPECT_EQ(load_checkpoint(checkpoints_).global_step, 6);
  EXPECT_THAT(
      [&] {
        FakeTrainer().train(
            {ModelSaver({.checkpoint_dir = checkpoints_, .may_be_non_finite = {"("}})});
      },
      ThrowsMessage<Error>(HasSubstr("may_be_non_finite")));
}

TEST_F(ModelSaverTest, RemovesWhatAKilledSaveLeft) {
  fs::create_directories(checkpoints_);
  const fs::path half = checkpoints_ / ".model-2.safetensors.tmp.1.1";
  write_file_atomically(half, "half");
  stdout_of([&] { trainer_.train({ModelSaver({.checkpoint_dir = checkpoints_})}); });
  EXPECT_FALSE(fs::exists(half));
}

}  // namespace
}  // namespace tensorpack
