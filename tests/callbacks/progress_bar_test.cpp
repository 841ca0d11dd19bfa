// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/progress_bar.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/utils/env.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

class ProgressBarTest : public testing::Test {
 protected:
  std::string output_of(std::vector<std::string> names) {
    return stdout_of([&] { trainer_.train({ProgressBar(std::move(names))}); });
  }

  FakeTrainer trainer_{{.steps_per_epoch = 4, .max_epoch = 1}};
};

// Counts how often other hooks add something to a run.
class FetchCounter final : public Callback {
 public:
  explicit FetchCounter(std::shared_ptr<std::vector<size_t>> counts) : counts_(std::move(counts)) {}
  RunArgs before_run(RunContext& context) override {
    counts_->push_back(bar_->before_run(context).fetches.size());
    return {};
  }
  void setup_graph() override { bar_->attach(trainer()); }
  void before_train() override { bar_->before_train(); }
  void before_epoch() override { bar_->before_epoch(); }
  void trigger_step() override { bar_->trigger_step(); }
  void after_epoch() override { bar_->after_epoch(); }

 private:
  std::shared_ptr<std::vector<size_t>> counts_;
  std::unique_ptr<ProgressBar> bar_ = std::make_unique<ProgressBar>();
};

TEST_F(ProgressBarTest, ShowsTheCostByDefault) {
  const ScopedEnv refresh("TENSORPACK_PROGRESS_REFRESH", "0");
  const std::string text = output_of({});
  EXPECT_THAT(text, HasSubstr("1/4 ["));
  EXPECT_THAT(text, HasSubstr("cost=10]"));
  EXPECT_THAT(text, HasSubstr("cost=30]"));
  EXPECT_THAT(text, HasSubstr("100%|"));
}

TEST_F(ProgressBarTest, ShowsScalarsAndVariablesWithoutTheirScopes) {
  EXPECT_THAT(output_of({"scope/twice", "w"}), HasSubstr("twice=8, w=4]"));
}

TEST_F(ProgressBarTest, FetchesOnlyInStepsThatAreDrawn) {
  const ScopedEnv refresh("TENSORPACK_PROGRESS_REFRESH", "1000");
  const auto counts = std::make_shared<std::vector<size_t>>();
  stdout_of([&] { trainer_.train({FetchCounter(counts)}); });
  EXPECT_THAT(*counts, ElementsAre(1, 0, 0, 1));  // the first step, and the last of the epoch
}

TEST_F(ProgressBarTest, LeavesRunsOfOtherOpsAlone) {
  const ScopedEnv refresh("TENSORPACK_PROGRESS_REFRESH", "0");
  const auto run_other_op = [](Callback& self) { self.trainer().hooked_sess().run(Op::nothing()); };
  stdout_of([&] {
    trainer_.train({ProgressBar(), PeriodicTrigger(CallbackFactory({.trigger = run_other_op}),
                                                   {.every_k_steps = 3})});
  });
  EXPECT_EQ(trainer_.global_step(), 5);
}

TEST_F(ProgressBarTest, UnknownNameIsAnErrorBeforeTheFirstStep) {
  EXPECT_THAT([&] { trainer_.train({ProgressBar({"csot"})}); },
              ThrowsMessage<Error>(HasSubstr("[ProgressBar] no tensor, input or variable named "
                                             "'csot' in 'train_op'. Did you mean 'cost'?")));
  EXPECT_EQ(trainer_.global_step(), 0);
}

TEST_F(ProgressBarTest, AVectorIsAnErrorBeforeTheFirstStep) {
  EXPECT_THAT([&] { trainer_.train({ProgressBar({"vector"})}); },
              ThrowsMessage<Error>(HasSubstr("'vector' is not a scalar: its shape is [3]")));
  EXPECT_EQ(trainer_.global_step(), 0);
}

TEST_F(ProgressBarTest, WithoutATrainOpShowsWhatIsAskedFor) {
  trainer_.forget_train_op();
  EXPECT_THAT(output_of({"cost"}), HasSubstr("cost=40]"));
}

TEST_F(ProgressBarTest, WithoutATrainOpShowsTheCostOfWhateverHasOne) {
  trainer_.forget_train_op();
  EXPECT_THAT(output_of({}), HasSubstr("cost=40]"));
}

TEST_F(ProgressBarTest, WithoutATrainOpARunThatHasNoCostIsPassedOver) {
  const ScopedEnv refresh("TENSORPACK_PROGRESS_REFRESH", "0");
  trainer_.forget_train_op();
  const auto run_other_op = [](Callback& self) { self.trainer().hooked_sess().run(Op::nothing()); };
  const std::string text = stdout_of([&] {
    trainer_.train({ProgressBar(), PeriodicTrigger(CallbackFactory({.trigger = run_other_op}),
                                                   {.every_k_steps = 1})});
  });
  EXPECT_THAT(text, HasSubstr("cost=30]"));
}

}  // namespace
}  // namespace tensorpack
