// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/run_monitors.h"

#include <utility>

#include "tensorpack/callbacks/first_program.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/monitors/run_setup.h"
#include "tensorpack/utils/class_name.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/flags.h"
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
  put_hyper_params();
  tell(&MonitorBase::before_train);
  wants_graph_ = trainer().monitors().wants_graph();
  put_setup();
}

// The session has recorded the step by then: the graph costs nothing more.
void RunMonitors::trigger_step() {
  if (std::exchange(wants_graph_, false)) put_graph();
  tell(&MonitorBase::trigger_step);
}

// What users reported themselves is not replaced; what they passed as a flag counts more than what
// came of it.
void RunMonitors::put_hyper_params() const {
  Monitors& monitors = trainer().monitors();
  HyperParams params = monitors.hyper_params();
  for (const auto& [flag, value] : command_line_flags()) {
    params.emplace(name_of_flag(flag), value);
  }
  params.merge(trainer().hyper_params());
  const LoopState& loop = trainer().loop();
  const SessionOptions& session = trainer().sess().options();
  const Graph& graph = trainer().graph();
  const ProcessGroup* processes = trainer().processes();
  const TrainerBase& trained_by = trainer();
  params.merge(HyperParams{{"trainer", class_name(typeid(trained_by))},
                           {"max_epoch", std::to_string(loop.max_epoch)},
                           {"steps_per_epoch", std::to_string(loop.steps_per_epoch)},
                           {"device", graph.options().device.str()},
                           {"processes", std::to_string(processes ? processes->size() : 1)},
                           {"precision", to_string(session.precision)},
                           {"executor", to_string(session.executor)},
                           {"deterministic", session.deterministic ? "true" : "false"},
                           {"seed", std::to_string(graph.seed())}});
  monitors.put_hyper_params(params);
}

void RunMonitors::put_setup() const {
  const Op op = first_program(trainer().train_op());
  trainer().monitors().put_setup(
      {.variables = trainer().variables(),
       .tensors = op ? op.outputs() : std::map<std::string, TensorSpec>()});
}

void RunMonitors::put_graph() const {
  const Op op = first_program(trainer().train_op());
  if (!op) return;
  try {
    trainer().monitors().put_graph(trainer().sess().trace(op));
  } catch (const std::exception& error) {
    logging::warning("Monitors do not get the graph of '{}': {}", op.name(), describe(error));
  }
}

}  // namespace tensorpack
