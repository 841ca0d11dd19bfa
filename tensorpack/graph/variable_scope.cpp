// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/variable_scope.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <exception>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/failure_place.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_checks.h"
#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

struct ScopeState {
  std::string path;
  Reuse reuse = Reuse::kNone;
};

ScopeState& scope_state() { return ThreadFrame::current().get<ScopeState>(); }

// Weights that begin with zeros pass no gradient on: a hidden layer of them never learns. State
// that is no weight is counted up from zero.
Initializer default_initializer(at::IntArrayRef shape, const VariableOptions& options) {
  const bool is_weight = options.role == VariableRole::kTrainable && shape.size() >= 2 &&
                         c10::isFloatingType(options.dtype) && c10::multiply_integers(shape) > 0;
  if (!is_weight) return {};
  return [glorot = init::xavier_uniform()](at::Tensor& value, const at::Generator& generator) {
    // libtorch draws no numbers of half precision on the CPU.
    at::Tensor drawn = at::empty(value.sizes(), at::promote_types(value.scalar_type(), at::kFloat));
    glorot(drawn, generator);
    value.copy_(drawn);
  };
}

// Behind the getters: the variable itself.
at::Tensor find_or_create(CallScope& call, const std::string& path, at::IntArrayRef shape,
                          const VariableOptions& options) {
  const Reuse reuse = VariableScope::current_reuse();
  TP_CHECK(
      options.role != VariableRole::kLocal || !call.options().is_prediction, "get_variable",
      "'{}' is a local variable, which no checkpoint has, and the model uses it to predict: it "
      "would predict with its first value. Create it with VariableRole::kModel.",
      path);
  Graph& graph = call.graph();
  const std::string& prefix = call.options().variable_prefix;
  const c10::Device device = options.device.value_or(call.options().device);
  Variable* variable = graph.variables().find(prefix + path);
  if (variable == nullptr) {
    TP_CHECK(reuse != Reuse::kReuse, "get_variable",
             "'{}' does not exist and its scope has Reuse::kReuse. Use Reuse::kAuto, or create it "
             "first. {}",
             path, did_you_mean(path, graph.variables().names()));
    TP_CHECK(options.role != VariableRole::kTrainable || call.options().may_create_trainable,
             "get_variable",
             "the trainable variable '{}' exists in this tower but not in the first one. Every "
             "tower must create the same variables: do not let names depend on the tower or on "
             "the mode. {}",
             path, did_you_mean(path, graph.variables().names()));
    const c10::Device home = options.device.value_or(graph.place_of_variable(device));
    variable = &graph.create_variable(path, shape, options, home, prefix);
  }
  check_same_variable(*variable, path, shape, options.dtype);
  return variable->tensor.to(device);  // itself, unless the call runs on another device
}

}  // namespace

VariableScope::VariableScope(const std::string& name, Reuse reuse)
    : outer_length_(scope_state().path.size()), outer_reuse_(scope_state().reuse) {
  TP_CHECK(!name.empty(), "VariableScope",
           "the name is empty. To change only the reuse of the scope around it, write "
           "VariableScope scope(Reuse::kAuto).");
  check_variable_name("VariableScope", name);
  if (!scope_state().path.empty()) scope_state().path += '/';
  scope_state().path += name;
  if (reuse != Reuse::kInherit) scope_state().reuse = reuse;
}

VariableScope::VariableScope(Reuse reuse)
    : outer_length_(scope_state().path.size()), outer_reuse_(scope_state().reuse) {
  if (reuse != Reuse::kInherit) scope_state().reuse = reuse;
}

VariableScope::~VariableScope() {
  if (std::uncaught_exceptions() > 0) FailurePlace::note_scope(scope_state().path);
  scope_state().path.resize(outer_length_);
  scope_state().reuse = outer_reuse_;
}

const std::string& VariableScope::current_path() { return scope_state().path; }

Reuse VariableScope::current_reuse() { return scope_state().reuse; }

std::string VariableScope::path_of(const std::string& name) {
  return scope_state().path.empty() ? name : scope_state().path + "/" + name;
}

at::Tensor get_variable(const std::string& name, at::IntArrayRef shape, VariableOptions options) {
  CallScope& call = CallScope::current_or_throw("get_variable");
  check_variable_name("get_variable", name);
  const std::string path = VariableScope::path_of(name);
  call.use_variable(path);
  // Before getters may change the role: frozen weights begin as trained ones do.
  if (!options.init) options.init = default_initializer(shape, options);
  return VariableGetterScope::get(path, std::move(options), [&](const VariableOptions& with) {
    return find_or_create(call, path, shape, with);
  });
}

at::Tensor get_scalar_variable(const std::string& name, double first_value, c10::ScalarType dtype) {
  CallScope& call = CallScope::current_or_throw("get_scalar_variable");
  check_variable_name("get_scalar_variable", name);
  Graph& graph = call.graph();
  const std::string& prefix = call.options().variable_prefix;
  Variable* variable = graph.variables().find(prefix + name);
  if (variable == nullptr) {
    variable = &graph.create_variable(
        name, {},
        {.init = init::constant(first_value), .role = VariableRole::kGlobal, .dtype = dtype},
        graph.place_of_variable(call.options().device), prefix);
  }
  return variable->tensor;
}

at::Tensor get_global_step() {
  const CallScope& call = CallScope::current_or_throw("get_global_step");
  return call.graph().global_step().tensor.to(call.options().device);
}

}  // namespace tensorpack
