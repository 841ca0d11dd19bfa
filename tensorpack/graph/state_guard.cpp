// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/state_guard.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tensorpack/graph/graph.h"

namespace tensorpack {

StateGuard::StateGuard(Graph& graph) : graph_(graph), outer_(graph.guard_) {
  for (const Variable& variable : graph.variables().all()) state_.save(variable.tensor);
  state_.save(at::detail::getDefaultCPUGenerator());
  for (const c10::Device device : graph.devices()) {
    if (device.is_cuda()) state_.save(at::globalContext().defaultGenerator(device));
  }
  graph_.guard_ = this;
}

StateGuard::~StateGuard() {
  graph_.guard_ = outer_;
  restore();
}

void StateGuard::on_created(const Variable& variable) {
  state_.save(variable.tensor);
  if (outer_ != nullptr) outer_->on_created(variable);
}

}  // namespace tensorpack
