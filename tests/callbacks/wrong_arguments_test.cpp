// SPDX-License-Identifier: Apache-2.0
// What callbacks say to arguments that make no sense: when they are made, or before the first step.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "tensorpack/callbacks/best_saver.h"
#include "tensorpack/callbacks/dump_as_image.h"
#include "tensorpack/callbacks/early_stopping.h"
#include "tensorpack/callbacks/estimated_time_left.h"
#include "tensorpack/callbacks/graph_profiler.h"
#include "tensorpack/callbacks/hooks.h"
#include "tensorpack/callbacks/human_hyper_param_setter.h"
#include "tensorpack/callbacks/inference_runner.h"
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
#include "tensorpack/callbacks/throughput_tracker.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

struct Wrong {
  std::string name;
  std::function<void()> act;
  std::string message;
};

// Without a log directory.
void train_with(OwnedList<Callback> callbacks) { FakeTrainer().train(std::move(callbacks)); }

std::vector<Wrong> all_wrong() {
  return {
      {"ProgressBar", [] { train_with({ProgressBar({"vector"})}); }, "'vector' is not a scalar"},
      {"ModelSaver", [] { train_with({ModelSaver({.max_to_keep = -1, .checkpoint_dir = "x"})}); },
       "[ModelSaver] max_to_keep must not be negative, got -1. Pass 0 to keep all."},
      {"ModelSaverWithoutADirectory", [] { train_with({ModelSaver()}); },
       "[ModelSaver] there is no directory to save to."},
      {"MinSaver", [] { MinSaver(""); }, "[MinSaver] the name of the scalar is empty."},
      {"MinSaverWithAnUnknownField", [] { MinSaver("cost", {.filename = "best-{epoch}"}); },
       "[MinSaver] the file name 'best-{epoch}' has braces around something else than value or "
       "step. Write {value} or {step}, or no braces."},
      {"MaxSaver", [] { MaxSaver(""); }, "[MaxSaver] the name of the scalar is empty."},
      {"InferenceRunner", [] { InferenceRunner(FromList({}), {}); },
       "[InferenceRunner] there is no inferencer. Pass at least one"},
      {"MergeAllSummaries", [] { MergeAllSummaries({.period = -1}); },
       "[MergeAllSummaries] the period must not be negative, got -1."},
      {"PrintStages", [] { PrintStages(FromList({})); }, "[PrintStages] the flow was not made"},
      {"RunOp", [] { RunOp(std::function<Op(Graph&)>()); }, "[RunOp] the function is empty."},
      {"RunOpOfNothing", [] { train_with({RunOp(Op())}); }, "[RunOp] the op is empty."},
      {"PeriodicTrigger", [] { PeriodicTrigger(ProgressBar(), {}); },
       "[PeriodicTrigger] it would never be due."},
      {"PeriodicCallback", [] { PeriodicCallback(ProgressBar(), {.every_k_steps = -1}); },
       "[PeriodicCallback] periods must not be negative, got every_k_steps = -1"},
      {"EnableCallbackIf", [] { EnableCallbackIf(ProgressBar(), {}); },
       "[EnableCallbackIf] the predicate is empty."},
      {"PeriodicRunHooks", [] { PeriodicRunHooks(ProgressBar(), 0); },
       "[PeriodicRunHooks] every_k_steps must be positive, got 0."},
      {"HookToCallback", [] { HookToCallback(std::unique_ptr<Hook>()); },
       "[HookToCallback] the hook is null."},
      {"ScheduledHyperParamSetter",
       [] {
         ScheduledHyperParamSetter("lr", {{1, 0.5}, {1, 0.1}});
       },
       "[ScheduledHyperParamSetter] there are two values for epoch 1: 0.1 and 0.5. Keep one."},
      {"ScheduledHyperParamSetterOfNaN",
       [] {
         ScheduledHyperParamSetter("lr", {{3, std::nan("")}});
       },
       "[ScheduledHyperParamSetter] the value for epoch 3 is NaN."},
      {"HyperParamSetterThatGivesNaN",
       [] {
         train_with(
             {HyperParamSetterWithFunc("scratch", [](int64_t, double) { return std::nan(""); })});
       },
       "[HyperParamSetterWithFunc] scratch would become NaN at epoch 0, global_step 0."},
      {"HyperParamSetterWithFunc", [] { HyperParamSetterWithFunc("lr", {}); },
       "[HyperParamSetterWithFunc] the function is empty."},
      {"HyperParamSetterOfNothing",
       [] {
         train_with({ScheduledHyperParamSetter("no_such_variable", {{1, 0.5}})});
       },
       "no_such_variable"},
      {"HumanHyperParamSetter", [] { HumanHyperParamSetter("lr", {.file_name = ""}); },
       "[HumanHyperParamSetter] the file name is empty."},
      {"StatMonitorParamSetter", [] { StatMonitorParamSetter("lr", {.stat_name = "cost"}); },
       "[StatMonitorParamSetter] value_func is empty."},
      {"EarlyStopping", [] { EarlyStopping({.stat_name = "cost", .patience = 0}); },
       "[EarlyStopping] the patience must be positive, got 0."},
      {"SessionRunTimeout", [] { SessionRunTimeout(std::chrono::seconds(-1)); },
       "[SessionRunTimeout] the time must be positive, got -1 seconds."},
      {"StartProcOrThread", [] { StartProcOrThread("worker", StartProcOrThread::Body()); },
       "[StartProcOrThread] the function is empty."},
      {"StartProcOrThreadOfNoCommand", [] { StartProcOrThread(""); },
       "[StartProcOrThread] the command is empty."},
      {"InjectShell", [] { InjectShell({.file = ""}); }, "[InjectShell] the file's name is empty."},
      {"ProcessTensors", [] { ProcessTensors({"cost"}, {}); },
       "[ProcessTensors] the function is empty."},
      {"TensorPrinter", [] { train_with({TensorPrinter({"cots"})}); },
       "no tensor, input or variable named 'cots' in 'train_op'. Did you mean 'cost'"},
      {"DumpTensors", [] { train_with({DumpTensors({"cost"})}); },
       "[DumpTensors] there is no log directory to write to."},
      {"DumpTensorAsImage", [] { DumpTensorAsImage(""); },
       "[DumpTensorAsImage] the name is empty."},
      {"DumpTensorAsImageWithoutAScale",
       [] { DumpTensorAsImage("vector", {.scale = std::nan("")}); },
       "[DumpTensorAsImage] the scale is nan."},
      {"DumpTensorAsImageOfNothing",
       [] {
         train_with({DumpTensorAsImage(
             "vector", {.map_func = [](const at::Tensor&) { return at::Tensor(); }})});
       },
       "[DumpTensorAsImage] map_func made an undefined tensor of 'vector' ["},
      {"DumpParamAsImage", [] { DumpParamAsImage(""); }, "the name is empty."},
      {"SimpleMovingAverage", [] { SimpleMovingAverage({"cost"}, 0); },
       "[SimpleMovingAverage] the window must be positive, got 0."},
      {"SimpleMovingAverageOfAVector", [] { train_with({SimpleMovingAverage({"vector"}, 2)}); },
       "[SimpleMovingAverage] 'vector' is not a scalar."},
      {"EstimatedTimeLeft", [] { EstimatedTimeLeft({.last_k_epochs = 0}); },
       "[EstimatedTimeLeft] last_k_epochs must be positive, got 0."},
      {"ThroughputTracker", [] { ThroughputTracker({.samples_per_step = -1}); },
       "[ThroughputTracker] samples_per_step must not be negative, got -1."},
      {"GPUUtilizationTracker", [] { GPUUtilizationTracker({-1}); },
       "[GPUUtilizationTracker] there is no device -1."},
      {"GraphProfiler", [] { GraphProfiler({.first_step = 0}); },
       "[GraphProfiler] first_step 0, repetitions 5 and shown 10 must be positive"},
  };
}

class WrongArgumentsTest : public testing::TestWithParam<Wrong> {};

TEST_P(WrongArgumentsTest, AreAnErrorThatSaysWhatIsWrong) {
  reset_logger_dir();
  stdout_of([&] {
    EXPECT_THAT(GetParam().act,
                testing::ThrowsMessage<Error>(testing::HasSubstr(GetParam().message)));
  });
}

INSTANTIATE_TEST_SUITE_P(All, WrongArgumentsTest, testing::ValuesIn(all_wrong()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tensorpack
