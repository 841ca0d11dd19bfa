// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/call_scope.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

struct CallState {
  CallScope* call = nullptr;
  KeptLayerOutputs* kept = nullptr;
  LookupLog* log = nullptr;
};

CallState& state() { return ThreadFrame::current().get<CallState>(); }

}  // namespace

struct CallScope::Notes {
  // Outputs of layers that are not kept, as long as somebody else does.
  std::unordered_map<std::string, c10::weak_intrusive_ptr<at::TensorImpl>> not_kept;
  std::vector<std::string> names;  // of these and of the named ones, oldest first
  std::map<Collection, CollectionItems> collections;
  std::unordered_set<std::string> used_variables;
};

CallScope::CallScope(Graph& graph, CallOptions options)
    : graph_(graph), options_(std::move(options)), notes_(std::make_unique<Notes>()) {
  TP_CHECK(state().call == nullptr, "TowerContext",
           "another call is in progress on this thread. Close its context first: towers do not "
           "nest.");
  state().call = this;
}

CallScope::~CallScope() { state().call = nullptr; }

CallScope* CallScope::current() { return state().call; }

CallScope& CallScope::current_or_throw(const char* where) {
  TP_CHECK(state().call != nullptr, where,
           "there is no model being called on this thread. Call this inside a tower function, or "
           "open a TowerContext first.");
  return *state().call;
}

const at::Tensor& CallScope::tensor(const std::string& name) const {
  if (state().log != nullptr) state().log->names_.insert(name);
  auto found = named_.find(name);
  if (found != named_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& entry : named_) known.push_back(entry.first);
  throw make_error("tensor", "this call named no tensor '{}'. {}", name, did_you_mean(name, known));
}

std::string CallScope::name_of(const at::Tensor& tensor) const {
  const auto is_called = [&](const std::string& name) {
    if (const auto kept = named_.find(name); kept != named_.end()) {
      return kept->second.is_same(tensor);
    }
    return notes_->not_kept.at(name)._unsafe_get_target() == tensor.unsafeGetTensorImpl();
  };
  const auto newest = std::find_if(notes_->names.rbegin(), notes_->names.rend(), is_called);
  return newest == notes_->names.rend() ? "" : *newest;
}

const CallScope::CollectionItems& CallScope::collection(Collection key) const {
  static const CollectionItems none;
  auto found = notes_->collections.find(key);
  return found == notes_->collections.end() ? none : found->second;
}

void CallScope::add_to_collection(Collection key, std::string name, at::Tensor tensor) {
  notes_->collections[key].emplace_back(std::move(name), std::move(tensor));
}

void CallScope::replace_in_collection(Collection key, std::string_view name, at::Tensor tensor) {
  for (auto& [added, value] : notes_->collections[key]) {
    if (added == name) value = std::move(tensor);
  }
}

std::vector<Variable*> CallScope::trainable(const std::string& regex) {
  VariableStore& variables = graph_.variables();
  std::vector<Variable*> found = variables.trainable(regex, options_.variable_prefix);
  if (!found.empty()) return found;
  std::vector<std::string> known;
  for (const Variable* variable : variables.trainable("", options_.variable_prefix)) {
    known.push_back(variable->tower_free_name());
  }
  TP_CHECK(!known.empty(), "trainable",
           "the model has no trainable variable. Create some in the tower function, with a layer "
           "or get_variable(); a torch::nn module becomes part of the graph by adopt(), with the "
           "members that it has registered.");
  throw make_error("trainable", "no trainable variable matches '{}'. {}", regex,
                   did_you_mean(regex, known));
}

void CallScope::use_variable(const std::string& path) {
  const bool is_second_use = !notes_->used_variables.insert(path).second;
  TP_CHECK(
      !is_second_use || VariableScope::current_reuse() != Reuse::kNone, "get_variable",
      "'{}' is already used in this tower call. Rename the layer, or open VariableScope(\"{}\", "
      "Reuse::kAuto) to share the weights.",
      path, path.find('/') == std::string::npos ? "..." : path.substr(0, path.find('/')));
}

// The name with its scope, and a number where a tower is called again.
std::string CallScope::new_name(const std::string& name) {
  std::string path = VariableScope::path_of(name);
  const bool repeats_are_expected = VariableScope::current_reuse() != Reuse::kNone;
  for (int suffix = 1; named_.contains(path) || notes_->not_kept.contains(path); ++suffix) {
    TP_CHECK(repeats_are_expected, "named",
             "'{}' is already the name of another tensor in this tower. Choose another name.",
             path);
    path = VariableScope::path_of(name + "_" + std::to_string(suffix));
  }
  notes_->names.push_back(path);
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
  if (call == nullptr || state().kept == nullptr) return named("output", std::move(tensor));
  const std::string name = call->new_name("output");
  if (state().kept->observer_) state().kept->observer_(name, tensor);
  if (state().kept->names_.contains(name)) {
    call->named_.emplace(name, tensor);
  } else {
    call->notes_->not_kept.emplace(name, tensor.getIntrusivePtr());
  }
  return tensor;
}

KeptLayerOutputs::KeptLayerOutputs(std::set<std::string> names, Observer observer)
    : names_(std::move(names)),
      observer_(std::move(observer)),
      outer_(std::exchange(state().kept, this)) {}

KeptLayerOutputs::~KeptLayerOutputs() { state().kept = outer_; }

LookupLog::LookupLog() : outer_(std::exchange(state().log, this)) {}

LookupLog::~LookupLog() { state().log = outer_; }

}  // namespace tensorpack
