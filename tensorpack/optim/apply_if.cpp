// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/apply_if.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/state_guard.h"

namespace tensorpack::detail {

void apply_gradients_if(const at::Tensor& condition, Optimizer& optimizer,
                        const Gradients& gradients, bool is_first_call) {
  CallScope& call = CallScope::current_or_throw("apply_gradients");
  Graph& graph = call.graph();
  if (is_first_call) {
    StateGuard guard(graph);  // makes the optimizer's own variables, and leaves no other trace
    optimizer.apply_gradients(gradients);
  }
  struct Saved {
    at::Tensor tensor;
    at::Tensor copy;
    int64_t version;
  };
  std::vector<Saved> saved;
  for (const Variable& variable : graph.variables().all()) {
    if (variable.tower_prefix != call.options().variable_prefix) continue;  // another tower's
    const at::Tensor tensor = variable.tensor.detach();
    saved.push_back({tensor, tensor.clone(), static_cast<int64_t>(tensor._version())});
  }
  optimizer.apply_gradients(gradients);
  // Copies of variables the optimizer did not write are dead code in a recorded program.
  for (Saved& s : saved) {
    if (s.tensor._version() != s.version) {
      s.tensor.copy_(at::where(condition.to(s.tensor.device()), s.tensor, s.copy));
    }
  }
}

}  // namespace tensorpack::detail
