// SPDX-License-Identifier: Apache-2.0
// A training goes on while its own predictor is asked, by its dataflow and by other threads.
#include <gmock/gmock.h>

#include <latch>
#include <thread>

#include "tensorpack/callbacks/check_numerics.h"
#include "tensorpack/callbacks/hyper_param_setter.h"
#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/generator_state.h"
#include "tensorpack/parallel/variable_sync.h"
#include "tensorpack/session/save_weights.h"
#include "tensorpack/session/session_init.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"
#include "tests/train/predicting.h"

namespace tensorpack {
namespace {

using predicting::Input;
using predicting::Training;

struct Case {
  const char* name;
  Training setup;
};

class PredictingThreadsTest : public testing::TestWithParam<Case> {};

TEST_P(PredictingThreadsTest, TheTrainingComesToItsEnd) {
  Training setup = GetParam().setup;
  for (setup.towers = 1; setup.towers <= 2; ++setup.towers) {
    int64_t answers = 0;
    EXPECT_NO_THROW(stdout_of([&] { answers = predicting::train(setup); })) << setup.towers;
    EXPECT_EQ(answers > 0, setup.threads > 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PredictingThreadsTest,
    testing::Values(Case{"Queue", {.input = Input::kQueue}}, Case{"Feed", {.input = Input::kFeed}},
                    Case{"InterruptibleFeed", {.input = Input::kInterruptibleFeed}},
                    Case{"QueueAsync", {.input = Input::kQueue, .async = true}},
                    Case{"FeedAsync", {.input = Input::kFeed, .async = true}},
                    Case{"QueueAndThreads", {.input = Input::kQueue, .threads = 2}},
                    Case{"FeedAndThreads", {.input = Input::kFeed, .threads = 2}},
                    Case{"QueueAndThreadsAsync",
                         {.input = Input::kQueue, .threads = 2, .async = true}},
                    Case{"EagerQueueAndThreads",
                         {.input = Input::kQueue, .threads = 2, .executor = ExecutorKind::kEager}}),
    [](const testing::TestParamInfo<Case>& info) { return info.param.name; });

class DecayWeight final : public Callback {
 public:
  void trigger_step() override {
    torch::NoGradGuard no_grad;
    const auto lock = graph().lock_variables();
    graph().variables().at("w").tensor.mul_(0.9);
  }
};

// Whatever reads or writes variables on the host, by name.
struct HostAccess {
  const char* name;
  std::function<void(FakeTrainer&, Callback&)> act;
};

class HostAccessTest : public testing::TestWithParam<HostAccess> {};

// Calls the methods of a callback where a trainer would.
void after_run(Callback& callback) {
  RunContext context(Op::nothing(), {});
  callback.after_run(context, {});
}

INSTANTIATE_TEST_SUITE_P(
    All, HostAccessTest,
    testing::Values(
        HostAccess{"StepCounter", [](FakeTrainer&, Callback& counter) { after_run(counter); }},
        HostAccess{"SetHyperParam",
                   [](FakeTrainer& trainer, Callback&) {
                     GraphVarParam param("w");
                     param.setup(trainer.graph());
                     param.set_value(3);
                   }},
        HostAccess{"GetHyperParam",
                   [](FakeTrainer& trainer, Callback&) {
                     GraphVarParam param("w");
                     param.setup(trainer.graph());
                     (void)param.get_value();
                   }},
        HostAccess{
            "Restore",
            [](FakeTrainer& trainer, Callback&) {
              DictRestore({{"w", at::ones({})}}, {.ignore = {"global_step"}}).init(trainer.graph());
            }},
        HostAccess{"CopyToReplicas",
                   [](FakeTrainer& trainer, Callback&) { copy_to_replicas(trainer.graph()); }},
        HostAccess{"AverageGradients",
                   [](FakeTrainer& trainer, Callback&) {
                     average_accumulated_gradients(trainer.graph(), nullptr);
                   }},
        HostAccess{"Generators",
                   [](FakeTrainer& trainer, Callback&) {
                     restore_generators(trainer.graph(), save_generators(trainer.graph()));
                   }},
        HostAccess{"Weights",
                   [](FakeTrainer& trainer, Callback&) {
                     const TempDir dir;
                     save_weights(trainer.graph(), dir / "weights.npz");
                   }},
        HostAccess{"ACallback",
                   [](FakeTrainer& trainer, Callback&) {
                     DecayWeight decay;
                     decay.attach(trainer);
                     decay.trigger_step();
                   }},
        HostAccess{"Summaries",
                   [](FakeTrainer& trainer, Callback&) { moving_summaries(trainer.graph()); }}),
    [](const testing::TestParamInfo<HostAccess>& info) { return info.param.name; });

TEST_P(HostAccessTest, WaitsForRunsOfOtherThreads) {
  FakeTrainer trainer;
  trainer.setup({});
  Callback& counter = trainer.callbacks().all()[0];
  counter.before_train();
  std::atomic<bool> begins = false, has_acted = false;
  std::jthread other;
  {
    const auto lock = trainer.graph().lock_variables();
    other = std::jthread([&] {
      begins = true;
      GetParam().act(trainer, counter);
      has_acted = true;
    });
    while (!begins) std::this_thread::yield();
    for (int i = 0; i < 20'000; ++i) std::this_thread::yield();
    EXPECT_FALSE(has_acted);
  }
  other.join();
  EXPECT_TRUE(has_acted);
}

}  // namespace
}  // namespace tensorpack
