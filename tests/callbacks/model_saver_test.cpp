// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/model_saver.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Key;
using testing::ThrowsMessage;
using testing::UnorderedElementsAre;

// Makes the directory unusable in the middle of a training.
class ReplaceDirectoryByFile final : public Callback {
 public:
  explicit ReplaceDirectoryByFile(fs::path dir) : dir_(std::move(dir)) {}
  void before_epoch() override {
    fs::remove_all(dir_);
    write_file_atomically(dir_, "");
  }

 private:
  fs::path dir_;
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
    trainer_.train(
        {ModelSaver({.checkpoint_dir = checkpoints_}), ReplaceDirectoryByFile(checkpoints_)});
  });
  EXPECT_THAT(text, HasSubstr("the checkpoint of step 2 was not saved"));
  EXPECT_EQ(trainer_.global_step(), 6);
}

}  // namespace
}  // namespace tensorpack
