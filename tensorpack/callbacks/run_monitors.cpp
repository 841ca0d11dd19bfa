// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/run_monitors.h"

#include "tensorpack/callbacks/first_program.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/monitors/run_setup.h"
#include "tensorpack/utils/class_name.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

const char* to_string(ExecutorKind kind) {
  switch (kind) {
    case ExecutorKind::kReplay:
      return "replay";
    case ExecutorKind::kCudaGraph:
      return "CUDA graph";
    case ExecutorKind::kEager:
      return "eager";
    default:
      return "default";
  }
}

}  // namespace

void RunMonitors::before_train() {
  tell(&MonitorBase::before_train);
  if (trainer().monitors().wants_graph()) put_graph();
  put_setup();
}

void RunMonitors::put_setup() const {
  const LoopState& loop = trainer().loop();
  const Op op = first_program(trainer().train_op());
  const SessionOptions& session = trainer().sess().options();
  const Graph& graph = trainer().graph();
  const ProcessGroup* processes = trainer().processes();
  RunSetup setup{
      .variables = trainer().variables(),
      .tensors = op ? op.outputs() : std::map<std::string, TensorSpec>(),
      .settings = {{"Trainer", class_name(typeid(trainer()))},
                   {"Epochs", fmt::format("{} to {}", loop.starting_epoch, loop.max_epoch)},
                   {"Steps per epoch", std::to_string(loop.steps_per_epoch)},
                   {"Device", graph.options().device.str()},
                   {"Processes", std::to_string(processes ? processes->size() : 1)},
                   {"Precision", to_string(session.precision)},
                   {"Executor", to_string(session.executor)},
                   {"Deterministic", session.deterministic ? "yes" : "no"},
                   {"Seed", std::to_string(graph.seed())}},
  };
  trainer().monitors().put_setup(setup);
}

void RunMonitors::put_graph() const {
  const Op op = first_program(trainer().train_op());
  if (!op) return;
  try {
    trainer().monitors().put_graph(trainer().sess().trace(op));
  } catch (const std::exception& error) {
    log::warning("Monitors do not get the graph of '{}': {}", op.name(), describe(error));
  }
}

}  // namespace tensorpack
