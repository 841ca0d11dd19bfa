// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/step_counter.h"

#include <gmock/gmock.h>

#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(MaintainStepCounterTest, CountsHookedRunsInTheVariable) {
  FakeTrainer trainer({.steps_per_epoch = 3, .max_epoch = 2});
  EXPECT_THAT(stdout_of([&] { trainer.train({}); }), IsEmpty());
  EXPECT_EQ(trainer.global_step(), 6);
  EXPECT_EQ(trainer.graph().global_step().tensor.item<int64_t>(), 6);
}

TEST(MaintainStepCounterTest, GoesOnFromARestoredStep) {
  FakeTrainer trainer({.steps_per_epoch = 3, .max_epoch = 1});
  trainer.graph().global_step().assign(at::scalar_tensor(40, at::kLong));
  EXPECT_THAT(stdout_of([&] { trainer.train({}); }), HasSubstr("with global_step = 40"));
  EXPECT_EQ(trainer.global_step(), 43);
}

TEST(MaintainStepCounterTest, PlainRunsDoNotCount) {
  FakeTrainer trainer;
  trainer.train({});
  trainer.sess().run(trainer.train_op());
  EXPECT_EQ(trainer.graph().global_step().tensor.item<int64_t>(), 2);
}

}  // namespace
}  // namespace tensorpack
