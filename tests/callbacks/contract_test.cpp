// SPDX-License-Identifier: Apache-2.0
// What holds for every callback.
#include <gmock/gmock.h>

#include <functional>

#include "tensorpack/callbacks/best_saver.h"
#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/check_numerics.h"
#include "tensorpack/callbacks/dump_as_image.h"
#include "tensorpack/callbacks/early_stopping.h"
#include "tensorpack/callbacks/estimated_time_left.h"
#include "tensorpack/callbacks/graph_profiler.h"
#include "tensorpack/callbacks/hooks.h"
#include "tensorpack/callbacks/human_hyper_param_setter.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/inject_shell.h"
#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/print_stages.h"
#include "tensorpack/callbacks/process_tensors.h"
#include "tensorpack/callbacks/progress_bar.h"
#include "tensorpack/callbacks/resource_trackers.h"
#include "tensorpack/callbacks/run_op.h"
#include "tensorpack/callbacks/scheduled_hyper_param_setter.h"
#include "tensorpack/callbacks/session_run_timeout.h"
#include "tensorpack/callbacks/start_proc_or_thread.h"
#include "tensorpack/callbacks/stat_monitor_param_setter.h"
#include "tensorpack/callbacks/stop_at_nan.h"
#include "tensorpack/callbacks/throughput_tracker.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/declared_classes.h"
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
      {"PeriodicRunHooks(ProgressBar)", false,
       [](const TempDir&) { return moved(PeriodicRunHooks(ProgressBar(), 2)); }},
      {"HookToCallback", false, [](const TempDir&) { return moved(HookToCallback(Hook())); }},
      {"ScheduledHyperParamSetter", false,
       [](const TempDir&) {
         return moved(ScheduledHyperParamSetter("scratch", {{1, 0.5}}));
       }},
      {"HyperParamSetterWithFunc", false,
       [](const TempDir&) {
         return moved(HyperParamSetterWithFunc("scratch", [](int64_t epoch, double old) {
           return old + static_cast<double>(epoch);
         }));
       }},
      {"HumanHyperParamSetter", false,
       [](const TempDir&) { return moved(HumanHyperParamSetter("scratch")); }},
      {"StatMonitorParamSetter", false,
       [](const TempDir&) {
         return moved(StatMonitorParamSetter(
             "scratch",
             {.stat_name = "cost", .value_func = [](double old) { return old / 2; }, .last_k = 2}));
       }},
      {"MinSaver", true,
       [](const TempDir& dir) { return moved(MinSaver("cost", {.checkpoint_dir = dir.path()})); }},
      {"MaxSaver", true,
       [](const TempDir& dir) { return moved(MaxSaver("cost", {.checkpoint_dir = dir.path()})); }},
      {"EarlyStopping", true,
       [](const TempDir&) { return moved(EarlyStopping({.stat_name = "cost"})); }},
      {"SessionRunTimeout", false,
       [](const TempDir&) { return moved(SessionRunTimeout(std::chrono::seconds(100))); }},
      {"StartProcOrThread", false,
       [](const TempDir&) {
         return moved(StartProcOrThread("worker", [](const std::stop_token&) {}));
       }},
      {"InjectShell", true, [](const TempDir&) { return moved(InjectShell()); }},
      {"ProcessTensors", true,
       [](const TempDir&) {
         return moved(ProcessTensors({"cost"}, [](const std::vector<at::Tensor>&) {}));
       }},
      {"TensorPrinter", true, [](const TempDir&) { return moved(TensorPrinter({"cost"})); }},
      {"DumpTensors", true, [](const TempDir&) { return moved(DumpTensors({"cost"})); }},
      {"DumpTensorAsImage", true,
       [](const TempDir&) {
         const auto picture = [](const at::Tensor& vector) { return vector.view({1, 3}); };
         return moved(DumpTensorAsImage("vector", {.map_func = picture}));
       }},
      {"DumpParamAsImage", true,
       [](const TempDir&) {
         const auto picture = [](const at::Tensor& scalar) { return scalar.view({1, 1}); };
         return moved(DumpParamAsImage("w", {.map_func = picture}));
       }},
      {"SimpleMovingAverage", true,
       [](const TempDir&) { return moved(SimpleMovingAverage({"cost"}, 2)); }},
      {"EstimatedTimeLeft", true, [](const TempDir&) { return moved(EstimatedTimeLeft()); }},
      {"ThroughputTracker", false, [](const TempDir&) { return moved(ThroughputTracker()); }},
      {"PeakMemoryTracker", false, [](const TempDir&) { return moved(PeakMemoryTracker()); }},
      {"HostResourceTracker", false, [](const TempDir&) { return moved(HostResourceTracker()); }},
      {"GPUUtilizationTracker", false,
       [](const TempDir&) { return moved(GPUUtilizationTracker()); }},
      {"GraphProfiler", true,
       [](const TempDir&) { return moved(GraphProfiler({.first_step = 1, .repetitions = 1})); }},
      {"CheckNumerics", false, [](const TempDir&) { return moved(CheckNumerics()); }},
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
  void before_train() override {
    trainer().monitors().put_scalar("cost", 1);  // which some watch
    callback_->before_train();
  }
  void before_epoch() override { callback_->before_epoch(); }
  RunArgs before_run(RunContext& context) override { return callback_->before_run(context); }
  void after_run(RunContext& context, const FetchedValues& values) override {
    callback_->after_run(context, values);
  }
  void trigger_step() override { callback_->trigger_step(); }
  void after_epoch() override { callback_->after_epoch(); }
  void trigger_epoch() override { callback_->trigger_epoch(); }
  void after_triggers() override { callback_->after_triggers(); }
  void after_train() override {
    callback_->after_train();
    callback_->after_train();
  }

 private:
  Callback* callback_;
};

// Which some watch.
CallbackFactory report_cost() {
  return CallbackFactory(
      {.before_train = [](Callback& self) { self.trainer().monitors().put_scalar("cost", 1); }});
}

class CallbackContractTest : public testing::TestWithParam<Case> {
 protected:
  CallbackContractTest() {
    stdout_of([&] { set_logger_dir(dir_.path(), LogDirAction::kKeep); });
  }
  ~CallbackContractTest() override { reset_logger_dir(); }

  TempDir dir_;
  std::unique_ptr<Callback> callback_ = GetParam().make(dir_);
};

TEST_P(CallbackContractTest, IsNamedAfterItsClass) {
  EXPECT_EQ(callback_->name(), GetParam().name);
}

TEST_P(CallbackContractTest, SaysWhereItRuns) {
  EXPECT_EQ(callback_->chief_only(), GetParam().chief_only);
}

TEST_P(CallbackContractTest, SaysAllThatItReportsUnlessFunctionsOfTheUserDo) {
  const std::set<std::string> others = {"CallbackFactory",
                                        "GPUUtilizationTracker",  // all there are
                                        "HookToCallback", "ProcessTensors", "StartProcOrThread"};
  FakeTrainer trainer;
  trainer.setup(std::move(callback_));
  EXPECT_EQ(trainer.callbacks().reports().are_all, !others.contains(GetParam().name));
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

TEST_P(CallbackContractTest, RunsInProcessesThatAreNotTheChief) {
  if (callback_->chief_only()) return;
  stdout_of([&] {
    FakeTrainer trainer({.steps_per_epoch = 2, .max_epoch = 2});
    trainer.set_chief(false);
    trainer.train({Borrowed(*callback_)});
    EXPECT_GE(trainer.global_step(), 4);  // two step counters count twice
  });
}

// However a training ends, the callback can be destroyed, and serve another one.
TEST_P(CallbackContractTest, SurvivesEveryWayOfEnding) {
  const auto fail = [] { throw std::runtime_error("on purpose"); };
  const auto stop = [] { throw StopTraining("on purpose"); };
  for (const char* method : {"before_train", "before_epoch", "before_run", "after_run",
                             "trigger_step", "trigger_epoch"}) {
    stdout_of([&] {
      EXPECT_THROW(FakeTrainer().train({ActAt(method, 0, fail), Borrowed(*callback_)}),
                   std::runtime_error)
          << method;
      EXPECT_THROW(FakeTrainer().train({Borrowed(*callback_), ActAt(method, 0, fail)}),
                   std::runtime_error)
          << method;
      FakeTrainer().train({Borrowed(*callback_), ActAt(method, 0, stop)});
    });
  }
  stdout_of([&] { FakeTrainer().train({Borrowed(*callback_)}); });
}

TEST_P(CallbackContractTest, GoesOnFromItsOwnState) {
  stdout_of([&] {
    FakeTrainer first({.steps_per_epoch = 2, .max_epoch = 2});
    first.train({report_cost(), std::move(callback_)});
    FakeTrainer second({.steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 3});
    second.setup({report_cost(), GetParam().make(dir_)});
    second.callbacks().load_states(first.callback_states());
    EXPECT_EQ(second.callback_states(), first.callback_states());
    second.graph().global_step().tensor.fill_(4);
    second.callbacks().before_train();
    second.run_one_epoch(3);
    EXPECT_EQ(second.callbacks().after_train(), nullptr);
  });
}

const std::filesystem::path kSources = TENSORPACK_SOURCE_DIR;

TEST(AllCallbacksTest, KeepTheContract) {
  std::set<std::string> expected =
      classes_derived_from("Callback", kSources / "tensorpack/callbacks");
  for (const char* base : {"ProxyCallback", "HyperParamSetter", "BestSaver"}) {
    ASSERT_EQ(expected.erase(base), 1u) << base;  // there is nothing but classes derived from it
  }
  std::set<std::string> tested;
  for (const Case& one : all_cases()) tested.insert(one.name.substr(0, one.name.find('(')));
  EXPECT_EQ(tested, expected);
}

// Two that every trainer has, and nobody writes.
TEST(AllCallbacksTest, AreInTheTutorial) {
  const std::string text = read_file(kSources / "docs/tutorial/callback.md") +
                           read_file(kSources / "docs/tutorial/summary.md");
  for (const Case& one : all_cases()) {
    const std::string name = one.name.substr(0, one.name.find('('));
    if (name == "MaintainStepCounter" || name == "RunMonitors") continue;
    EXPECT_THAT(text, testing::HasSubstr("`" + name)) << "not in callback.md or summary.md";
  }
}

INSTANTIATE_TEST_SUITE_P(All, CallbackContractTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) {
                           return info.param.name.substr(0, info.param.name.find('('));
                         });

}  // namespace
}  // namespace tensorpack
