// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/gradient_scopes.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <memory>
#include <utility>

#include "tensorpack/graph/variable_scope.h"

namespace tensorpack {

LayerOfOperator layer_of_scope(const std::string& scope) {
  if (scope == kGradientScope) return {.layer = "", .is_backward = true};
  const std::string prefix = std::string(kGradientScope) + "/";
  if (!scope.starts_with(prefix)) return {.layer = scope};
  return {.layer = scope.substr(prefix.size()), .is_backward = true};
}

GradientScopes*& GradientScopes::active() {
  static thread_local GradientScopes* scopes = nullptr;
  return scopes;
}

GradientScopes::GradientScopes() : outer_(std::exchange(active(), this)) {
  const auto on_enter =
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    if (active() != nullptr) {
      active()->differentiated_.push_back(static_cast<uint64_t>(function.seqNr()));
    }
    return nullptr;
  };
  const auto on_leave = [](const at::RecordFunction&, at::ObserverContext*) {
    if (active() != nullptr && !active()->differentiated_.empty()) {
      active()->differentiated_.pop_back();
    }
  };
  handle_ = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_enter, on_leave).scopes({at::RecordScope::BACKWARD_FUNCTION}));
}

GradientScopes::~GradientScopes() {
  at::removeCallback(handle_);
  active() = outer_;
}

std::string GradientScopes::current() {
  const std::string& path = VariableScope::current_path();
  if (differentiated_.empty()) {
    // Autograd makes its node before the operator runs: if there is one, it is the last. One that
    // is known belongs to an operator before, and this one has none.
    scopes_.emplace(at::sequence_number::peek() - 1, path);
    return path;
  }
  const auto found = scopes_.find(differentiated_.back());
  std::string scope(kGradientScope);
  if (found != scopes_.end() && !found->second.empty()) scope += "/" + found->second;
  return scope;
}

}  // namespace tensorpack
