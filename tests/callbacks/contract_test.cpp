// SPDX-License-Identifier: Apache-2.0
// What holds for every callback.
#include <gmock/gmock.h>

#include <functional>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/print_stages.h"
#include "tensorpack/callbacks/progress_bar.h"
#include "tensorpack/callbacks/run_op.h"
#include "tensorpack/callbacks/stop_at_nan.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

struct Case {
  std::string name;
  bool chief_only;
  std::function<std::unique_ptr<Callback>(const TempDir&)> make;
};

// Through two moves: a callback is a value until a list takes it.
template <typename T>
std::unique_ptr<Callback> moved(T callback) {
  T second = std::move(callback);
  return std::make_unique<T>(std::move(second));
}

std::vector<Case> all_cases() {
  return {
      {"MaintainStepCounter", false, [](const TempDir&) { return moved(MaintainStepCounter()); }},
      {"RunMonitors", false, [](const TempDir&) { return moved(RunMonitors()); }},
      {"ProgressBar", false, [](const TempDir&) { return moved(ProgressBar({"cost"})); }},
      {"ModelSaver", false,
       [](const TempDir& dir) { return moved(ModelSaver({.checkpoint_dir = dir.path()})); }},
      {"InferenceRunner", true,
       [](const TempDir&) {
         return moved(InferenceRunner(FromList({{at::zeros({2}), at::zeros({2}, at::kLong)}}),
                                      {ClassificationError()}));
       }},
      {"MergeAllSummaries", true, [](const TempDir&) { return moved(MergeAllSummaries()); }},
      {"PrintStages", true,
       [](const TempDir&) {
         const DataFlowPtr flow = FromList({}) | repeat(2);
         return moved(PrintStages(*flow));
       }},
      {"StopAtNaN", false, [](const TempDir&) { return moved(StopAtNaN()); }},
      {"RunOp", false, [](const TempDir&) { return moved(RunOp(Op::nothing())); }},
      {"CallbackFactory", true,
       [](const TempDir&) { return moved(CallbackFactory({.trigger = [](Callback&) {}})); }},
      {"PeriodicTrigger(RunOp)", false,
       [](const TempDir&) {
         return moved(PeriodicTrigger(RunOp(Op::nothing()), {.every_k_steps = 1}));
       }},
      {"EnableCallbackIf(ProgressBar)", false,
       [](const TempDir&) {
         return moved(EnableCallbackIf(ProgressBar(), [](const Callback&) { return true; }));
       }},
      {"PeriodicCallback(ProgressBar)", false,
       [](const TempDir&) {
         return moved(PeriodicCallback(ProgressBar(), {.every_k_epochs = 2}));
       }},
  };
}

// Lends a callback to a trainer, and calls after_train() twice.
class Borrowed final : public Callback {
 public:
  explicit Borrowed(Callback& callback) : callback_(&callback) {}
  void setup_graph() override {
    callback_->attach(trainer());
    callback_->setup_graph();
  }
  void before_train() override { callback_->before_train(); }
  void before_epoch() override { callback_->before_epoch(); }
  RunArgs before_run(RunContext& context) override { return callback_->before_run(context); }
  void after_run(RunContext& context, const FetchedValues& values) override {
    callback_->after_run(context, values);
  }
  void trigger_step() override { callback_->trigger_step(); }
  void after_epoch() override { callback_->after_epoch(); }
  void trigger_epoch() override { callback_->trigger_epoch(); }
  void after_train() override {
    callback_->after_train();
    callback_->after_train();
  }

 private:
  Callback* callback_;
};

class CallbackContractTest : public testing::TestWithParam<Case> {
 protected:
  TempDir dir_;
  std::unique_ptr<Callback> callback_ = GetParam().make(dir_);
};

TEST_P(CallbackContractTest, IsNamedAfterItsClass) {
  EXPECT_EQ(callback_->name(), GetParam().name);
}

TEST_P(CallbackContractTest, SaysWhereItRuns) {
  EXPECT_EQ(callback_->chief_only(), GetParam().chief_only);
}

TEST_P(CallbackContractTest, ServesTwoTrainersOneAfterTheOther) {
  stdout_of([&] {
    for (int i = 0; i < 2; ++i) FakeTrainer().train({Borrowed(*callback_)});
  });
}

TEST_P(CallbackContractTest, RunsWithoutSteps) {
  stdout_of([&] {
    FakeTrainer({.steps_per_epoch = 0, .max_epoch = 2}).train({Borrowed(*callback_)});
    FakeTrainer({.steps_per_epoch = 1, .max_epoch = 0}).train({Borrowed(*callback_)});
  });
}

INSTANTIATE_TEST_SUITE_P(All, CallbackContractTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) {
                           return info.param.name.substr(0, info.param.name.find('('));
                         });

}  // namespace
}  // namespace tensorpack
