// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/variable_getter.h"

#include <utility>

namespace tensorpack {
namespace {

thread_local VariableGetterScope* innermost = nullptr;

}  // namespace

VariableGetterScope::VariableGetterScope(VariableGetter getter)
    : getter_(std::move(getter)), outer_(innermost) {
  innermost = this;
}

VariableGetterScope::~VariableGetterScope() { innermost = outer_; }

at::Tensor VariableGetterScope::get(const std::string& name, VariableOptions options,
                                    const NextGetter& last) {
  std::function<at::Tensor(VariableGetterScope*, VariableOptions)> ask =
      [&](VariableGetterScope* scope, VariableOptions with) {
        if (scope == nullptr) return last(std::move(with));
        return scope->getter_(name, std::move(with), [&](VariableOptions inner) {
          return ask(scope->outer_, std::move(inner));
        });
      };
  return ask(innermost, std::move(options));
}

}  // namespace tensorpack
