// SPDX-License-Identifier: Apache-2.0
// Trainings whose predictor is asked by their dataflow and by up to four threads: every
// combination.
#include <gtest/gtest.h>

#include "tests/support/capture.h"
#include "tests/train/predicting.h"

namespace tensorpack {
namespace {

using predicting::Input;
using predicting::Training;

std::vector<Training> all_trainings() {
  std::vector<Training> all;
  for (const Input input : {Input::kQueue, Input::kFeed, Input::kInterruptibleFeed}) {
    for (const int towers : {1, 2}) {
      for (const int threads : {0, 1, 4}) {
        for (const bool async : {false, true}) {
          for (const ExecutorKind executor : {ExecutorKind::kDefault, ExecutorKind::kEager}) {
            all.push_back({input, towers, threads, async, executor, /*steps=*/150});
          }
        }
      }
    }
  }
  return all;
}

TEST(PredictingCampaign, EveryTrainingComesToItsEnd) {
  for (const Training& training : all_trainings()) {
    SCOPED_TRACE(testing::Message()
                 << "input " << static_cast<int>(training.input) << ", towers " << training.towers
                 << ", threads " << training.threads << ", async " << training.async
                 << ", executor " << static_cast<int>(training.executor));
    EXPECT_NO_THROW(stdout_of([&] { predicting::train(training); }));
  }
}

}  // namespace
}  // namespace tensorpack
