// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/variable_sync.h"

#include <ATen/ATen.h>

#include "tensorpack/tower/tower_variable.h"

namespace tensorpack {

size_t copy_to_replicas(Graph& graph) {
  const at::NoGradGuard no_grad;
  size_t copies = 0;
  for (const Variable& variable : graph.variables().all()) {
    for (const Variable* replica : variable.replicas) replica->tensor.copy_(variable.tensor);
    copies += variable.replicas.size();
  }
  return copies;
}

void broadcast_variables(Graph& graph, size_t count, ProcessGroup& processes) {
  const at::NoGradGuard no_grad;
  size_t seen = 0;
  for (const Variable& variable : graph.variables().all()) {
    if (seen++ == count) break;
    if (variable.is_replica() || is_tower_variable(variable)) continue;
    processes.broadcast(variable.tensor.detach());
  }
}

}  // namespace tensorpack
