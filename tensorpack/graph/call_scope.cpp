// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/call_scope.h"

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

thread_local CallScope* current_call = nullptr;

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

at::Tensor named(const std::string& name, at::Tensor tensor) {
  CallScope* call = CallScope::current();
  if (call == nullptr) return tensor;
  TP_CHECK(!name.empty(), "named", "a tensor cannot have an empty name. Give it one.");
  TP_CHECK(tensor.defined(), "named",
           "the tensor to be called '{}' is undefined. Compute it first.", name);
  std::string path = VariableScope::path_of(name);
  const bool repeats_are_expected = VariableScope::current_reuse() != Reuse::kNone;
  for (int suffix = 1; call->named_.contains(path); ++suffix) {
    TP_CHECK(repeats_are_expected, "named",
             "'{}' is already the name of another tensor in this tower. Choose another name.",
             path);
    path = VariableScope::path_of(name + "_" + std::to_string(suffix));
  }
  call->named_.emplace(std::move(path), tensor);
  return tensor;
}

}  // namespace tensorpack
