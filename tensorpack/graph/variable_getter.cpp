// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/variable_getter.h"

#include <utility>

#include "tensorpack/utils/detail/thread_frame.h"

namespace tensorpack {
namespace {

struct GetterState {
  VariableGetterScope* innermost = nullptr;
};

VariableGetterScope*& innermost() { return ThreadFrame::current().get<GetterState>().innermost; }

}  // namespace

VariableGetterScope::VariableGetterScope(VariableGetter getter, bool freezes_layers)
    : getter_(std::move(getter)),
      freezes_layers_(freezes_layers),
      outer_(std::exchange(innermost(), this)) {}

VariableGetterScope::~VariableGetterScope() { innermost() = outer_; }

bool VariableGetterScope::is_open() { return innermost() != nullptr; }

bool VariableGetterScope::freezes_layers() {
  for (const VariableGetterScope* scope = innermost(); scope; scope = scope->outer_) {
    if (scope->freezes_layers_) return true;
  }
  return false;
}

at::Tensor VariableGetterScope::get(const std::string& name, VariableOptions options,
                                    const NextGetter& last) {
  std::function<at::Tensor(VariableGetterScope*, VariableOptions)> ask =
      [&](VariableGetterScope* scope, VariableOptions with) {
        if (scope == nullptr) return last(std::move(with));
        return scope->getter_(name, std::move(with), [&](VariableOptions inner) {
          return ask(scope->outer_, std::move(inner));
        });
      };
  return ask(innermost(), std::move(options));
}

}  // namespace tensorpack
