// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/call_scope.h"

#include <utility>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

thread_local CallScope* current_call = nullptr;
thread_local KeptLayerOutputs* current_kept = nullptr;
thread_local LookupLog* current_log = nullptr;

}  // namespace

CallScope::CallScope(Graph& graph, CallOptions options)
    : graph_(graph), options_(std::move(options)) {
  TP_CHECK(current_call == nullptr, "TowerContext",
           "another call is in progress on this thread. Close its context first: towers do not "
           "nest.");
  current_call = this;
}

CallScope::~CallScope() { current_call = nullptr; }

CallScope* CallScope::current() { return current_call; }

CallScope& CallScope::current_or_throw(const char* where) {
  TP_CHECK(current_call != nullptr, where,
           "there is no model being called on this thread. Call this inside a tower function, or "
           "open a TowerContext first.");
  return *current_call;
}

const at::Tensor& CallScope::tensor(const std::string& name) const {
  if (current_log != nullptr) current_log->names_.insert(name);
  auto found = named_.find(name);
  if (found != named_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& entry : named_) known.push_back(entry.first);
  throw make_error("tensor", "this call named no tensor '{}'. {}", name, did_you_mean(name, known));
}

std::string CallScope::name_of(const at::Tensor& tensor) const {
  for (const auto& [name, candidate] : named_) {
    if (candidate.is_same(tensor)) return name;
  }
  for (const auto& [name, candidate] : not_kept_) {
    if (candidate._unsafe_get_target() == tensor.unsafeGetTensorImpl()) return name;
  }
  return "";
}

const CallScope::CollectionItems& CallScope::collection(Collection key) const {
  static const CollectionItems none;
  auto found = collections_.find(key);
  return found == collections_.end() ? none : found->second;
}

void CallScope::add_to_collection(Collection key, std::string name, at::Tensor tensor) {
  collections_[key].emplace_back(std::move(name), std::move(tensor));
}

// The name with its scope, and a number where a tower is called again.
std::string CallScope::new_name(const std::string& name) {
  std::string path = VariableScope::path_of(name);
  const bool repeats_are_expected = VariableScope::current_reuse() != Reuse::kNone;
  for (int suffix = 1; named_.contains(path) || not_kept_.contains(path); ++suffix) {
    TP_CHECK(repeats_are_expected, "named",
             "'{}' is already the name of another tensor in this tower. Choose another name.",
             path);
    path = VariableScope::path_of(name + "_" + std::to_string(suffix));
  }
  return path;
}

at::Tensor named(const std::string& name, at::Tensor tensor) {
  CallScope* call = CallScope::current();
  if (call == nullptr) return tensor;
  TP_CHECK(!name.empty(), "named", "a tensor cannot have an empty name. Give it one.");
  TP_CHECK(tensor.defined(), "named",
           "the tensor to be called '{}' is undefined. Compute it first.", name);
  call->named_.emplace(call->new_name(name), tensor);
  return tensor;
}

at::Tensor layer_output(at::Tensor tensor) {
  CallScope* call = CallScope::current();
  if (call == nullptr || current_kept == nullptr) return named("output", std::move(tensor));
  const std::string name = call->new_name("output");
  if (current_kept->observer_) current_kept->observer_(name, tensor);
  if (current_kept->names_.contains(name)) {
    call->named_.emplace(name, tensor);
  } else {
    call->not_kept_.emplace(name, tensor.getIntrusivePtr());
  }
  return tensor;
}

KeptLayerOutputs::KeptLayerOutputs(std::set<std::string> names, Observer observer)
    : names_(std::move(names)),
      observer_(std::move(observer)),
      outer_(std::exchange(current_kept, this)) {}

KeptLayerOutputs::~KeptLayerOutputs() { current_kept = outer_; }

LookupLog::LookupLog() : outer_(std::exchange(current_log, this)) {}

LookupLog::~LookupLog() { current_log = outer_; }

}  // namespace tensorpack
