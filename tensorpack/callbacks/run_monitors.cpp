// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/run_monitors.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

// What the first tower runs; an empty op when nothing is recorded.
Op first_program(const Op& op) {
  if (!op || op.state().kind == Op::State::Kind::kProgram) return op;
  for (const Op& member : op.state().members) {
    if (Op found = first_program(member)) return found;
  }
  return {};
}

}  // namespace

void RunMonitors::before_train() {
  tell(&MonitorBase::before_train);
  if (trainer().monitors().wants_graph()) put_graph();
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
