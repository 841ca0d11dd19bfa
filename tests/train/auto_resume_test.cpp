// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/auto_resume.h"

#include <gmock/gmock.h>

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

TEST_F(AutoResumeConfigTest, StatisticsOfAnotherEpochAreTold) {
  train(2);
  write_file_atomically(dir_ / "stats.json", R"([{"epoch_num": 5, "global_step": 20}
])");
  const std::string text = stdout_of([] {
    EXPECT_EQ(AutoResumeTrainConfig(TrainConfig{}).starting_epoch, 3) << "the checkpoint's epoch";
  });
  EXPECT_THAT(text, HasSubstr("end with epoch 5, the checkpoint 'model-8.safetensors' with epoch "
                              "2: training goes on from the checkpoint."));
}

TEST(AutoResumeTest, WithoutLogDirectoryThereIsAnError) {
  EXPECT_THAT([] { AutoResumeTrainConfig(TrainConfig{}); },
              ThrowsMessage<Error>(HasSubstr("there is no log directory to resume from.")));
}

}  // namespace
}  // namespace tensorpack
