// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/run_monitors.h"

#include "tensorpack/callbacks/first_program.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

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
