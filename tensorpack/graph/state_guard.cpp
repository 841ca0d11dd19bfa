// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/state_guard.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "tensorpack/graph/graph.h"

namespace tensorpack {
namespace {

at::Tensor state_of(at::Generator generator) {
  std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

StateGuard::StateGuard(Graph& graph) : graph_(graph), outer_(graph.guard_) {
  graph_.guard_ = this;
  for (const Variable& variable : graph.variables().all()) save(variable.tensor);
  std::vector<at::Generator> generators{at::detail::getDefaultCPUGenerator()};
  if (graph.options().device.is_cuda()) {
    generators.push_back(at::globalContext().defaultGenerator(graph.options().device));
  }
  for (const at::Generator& generator : generators) {
    generators_.emplace_back(generator, state_of(generator));
  }
}

StateGuard::~StateGuard() {
  graph_.guard_ = outer_;
  restore();
}

void StateGuard::restore() {
  at::NoGradGuard no_grad;
  for (auto& [tensor, value] : saved_) tensor.copy_(value);
  for (auto& [generator, state] : generators_) {
    std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_state(state);
  }
}

void StateGuard::on_created(const Variable& variable) {
  save(variable.tensor);
  if (outer_ != nullptr) outer_->on_created(variable);
}

void StateGuard::save(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  saved_.emplace_back(tensor.detach(), tensor.detach().clone());
}

}  // namespace tensorpack
