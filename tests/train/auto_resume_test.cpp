// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/auto_resume.h"

#include <gmock/gmock.h>

#include <fstream>
#include <functional>

#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class AutoResumeConfigTest : public testing::Test {
 protected:
  AutoResumeConfigTest() { set_logger_dir(dir_.path(), LogDirAction::kKeep); }
  ~AutoResumeConfigTest() override { reset_logger_dir(); }

  // As a run of `epochs` epochs would leave it.
  void train(int64_t epochs) {
    launch_train_with_config({.model = linear_model(),
                              .dataflow = linear_data(),
                              .callbacks = {ModelSaver()},
                              .extra_callbacks = OwnedList<Callback>(),
                              .monitors = OwnedList<MonitorBase>(),
                              .max_epoch = epochs},
                             SimpleTrainer());
  }

  TempDir dir_;
};

TEST_F(AutoResumeConfigTest, WithoutCheckpointNothingChanges) {
  const AutoResumeTrainConfig config({.starting_epoch = 3});
  EXPECT_EQ(config.starting_epoch, 3);
  EXPECT_FALSE(config.session_init);
}

TEST_F(AutoResumeConfigTest, CheckpointWinsOverTheConfig) {
  train(2);
  const std::string text = stdout_of([] {
    const AutoResumeTrainConfig config({.starting_epoch = 9});
    EXPECT_EQ(config.starting_epoch, 3);
    EXPECT_TRUE(config.session_init);
  });
  EXPECT_THAT(text, HasSubstr("with epoch 3, step 0 of it, whatever the config says."));
}

TEST_F(AutoResumeConfigTest, UnlessItIsAskedNotTo) {
  train(2);
  const AutoResumeTrainConfig given({.starting_epoch = 9}, {.always_resume = false});
  EXPECT_EQ(given.starting_epoch, 9);
  EXPECT_FALSE(given.session_init);
  const AutoResumeTrainConfig not_given(TrainConfig{}, {.always_resume = false});
  EXPECT_EQ(not_given.starting_epoch, 3);
  EXPECT_TRUE(not_given.session_init);
}

TEST_F(AutoResumeConfigTest, ADamagedCheckpointIsPassedOver) {
  train(2);
  std::ofstream(dir_ / "model-8.safetensors") << "";
  const std::string text =
      stdout_of([] { EXPECT_EQ(AutoResumeTrainConfig(TrainConfig{}).starting_epoch, 2); });
  EXPECT_THAT(text, HasSubstr("model-8.safetensors' is not a valid safetensors file"));
}

TEST_F(AutoResumeConfigTest, ADamagedNumberOfStepsIsAnError) {
  train(1);
  Checkpoint checkpoint = load_checkpoint(dir_.path());
  for (const char* text : {"abc", "-1", ""}) {
    checkpoint.extra[kStepsDoneInEpoch] = text;
    CheckpointDirectory(dir_.path()).save(checkpoint);
    EXPECT_THAT([] { AutoResumeTrainConfig(TrainConfig{}); },
                ThrowsMessage<Error>(HasSubstr("instead of a number of steps")));
  }
}

// Going on with other random numbers, a fresh optimizer or a fresh weight is not going on.
class StrictResumeTest : public AutoResumeConfigTest {
 protected:
  // Resumes from what `change` makes of the checkpoint.
  std::string resume_from(const std::function<void(Checkpoint&)>& change, bool strict = true) {
    train(1);
    Checkpoint checkpoint = load_checkpoint(dir_.path());
    change(checkpoint);
    CheckpointDirectory(dir_.path()).save(checkpoint);
    return stdout_of([&] {
      launch_train_with_config(AutoResumeTrainConfig({.model = linear_model(),
                                                      .dataflow = linear_data(),
                                                      .monitors = OwnedList<MonitorBase>(),
                                                      .max_epoch = 2},
                                                     {.strict = strict}),
                               SimpleTrainer());
    });
  }
};

TEST_F(StrictResumeTest, WhatIsMissingIsAnError) {
  const auto refused = [&](const std::function<void(Checkpoint&)>& change, const char* reason) {
    EXPECT_THAT([&] { resume_from(change); }, ThrowsMessage<Error>(HasSubstr(reason)));
  };
  refused([](Checkpoint& c) { c.variables.erase("learning_rate"); }, "(learning_rate)");
  refused([](Checkpoint& c) { c.extra.erase("generator/cpu"); }, "no state of generator/cpu");
  refused(
      [](Checkpoint& c) {
        auto node = c.variables.extract("w");
        node.key() = "weight";
        c.variables.insert(std::move(node));
      },
      "no value for 1 variable of the graph (w), and the graph has no variable for 1 value of "
      "the checkpoint (weight)");
}

TEST_F(StrictResumeTest, UnlessThatIsWanted) {
  const std::string text = resume_from(
      [](Checkpoint& c) {
        c.variables.erase("learning_rate");
        c.extra.erase("generator/cpu");
      },
      /*strict=*/false);
  EXPECT_THAT(text, HasSubstr("no state of generator/cpu: random numbers start anew"));
  EXPECT_THAT(text, HasSubstr("1 variable of the graph began anew (learning_rate)"));
}

TEST(AutoResumeTest, WithoutLogDirectoryThereIsAnError) {
  EXPECT_THAT([] { AutoResumeTrainConfig(TrainConfig{}); },
              ThrowsMessage<Error>(HasSubstr("there is no log directory to resume from.")));
}

}  // namespace
}  // namespace tensorpack
