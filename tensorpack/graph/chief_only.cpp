// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/chief_only.h"

#include <utility>

#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

struct OpenScope {
  const ChiefOnlyScope* innermost = nullptr;
};

const ChiefOnlyScope*& innermost_scope() {
  return ThreadFrame::current().get<OpenScope>().innermost;
}

[[noreturn]] void fail(const std::string& where, const std::string& name, const std::string& who) {
  throw make_error(
      where,
      "'{}' is set by {}, which runs in the chief process alone: the other ranks would go on with "
      "the value before. Call set_chief_only(false) on the callback, so that it runs in all ranks. "
      "If only the chief can decide, as by its monitors, use HyperParamSetterWithFunc with "
      "{{.decided_by_chief = true}}, by which all ranks take the chief's value.",
      name, who);
}

[[noreturn]] void fail_to_announce(const std::string& who) {
  throw make_error(
      "announce_change",
      "a change is announced by {}, which runs in the chief process alone: the other ranks would "
      "go on with the values before. Call set_chief_only(false) on the callback, so that all "
      "ranks change and announce the same.",
      who);
}

}  // namespace

ChiefOnlyScope::ChiefOnlyScope(const std::function<std::string()>& who,
                               const VariableStore& variables, const std::set<const Variable*>& own)
    : who_(who), variables_(variables), own_(own), outer_(std::exchange(innermost_scope(), this)) {}

ChiefOnlyScope::~ChiefOnlyScope() { innermost_scope() = outer_; }

// A callback may well have another graph, as of a predictor.
bool ChiefOnlyScope::protects(const Variable& variable) const {
  return variable.role != VariableRole::kLocal && variables_.find(variable.name) == &variable &&
         !own_.contains(&variable);
}

void ChiefOnlyScope::check_assignable(const Variable& variable) {
  const ChiefOnlyScope* scope = innermost_scope();
  if (scope != nullptr && scope->protects(variable)) fail("assign", variable.name, scope->who_());
}

void ChiefOnlyScope::check_settable(const std::string& name) {
  const ChiefOnlyScope* scope = innermost_scope();
  if (scope != nullptr) fail("set_value", name, scope->who_());
}

// Nothing where a callback has another graph, as of a predictor.
void ChiefOnlyScope::check_announceable(const VariableStore& variables) {
  const ChiefOnlyScope* scope = innermost_scope();
  if (scope != nullptr && &scope->variables_ == &variables) fail_to_announce(scope->who_());
}

}  // namespace tensorpack
