// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/replace_variables.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

VariableGetterScope freeze_variables(FreezeOptions options) {
  return VariableGetterScope(
      [options](const std::string& name, VariableOptions variable, const NextGetter& next) {
        if (variable.role != VariableRole::kTrainable) return next(variable);
        if (options.as_model_variables) variable.role = VariableRole::kModel;
        const at::Tensor value = next(variable);
        if (options.stop_gradient) {
          CallScope::current_or_throw("freeze_variables")
              .add_to_collection(Collection::kFrozenVariables, name, value);
        }
        return options.stop_gradient ? value.detach() : value;
      },
      /*freezes_layers=*/options.stop_gradient || options.as_model_variables);
}

VariableGetterScope remap_variables(
    std::function<at::Tensor(const std::string& name, const at::Tensor& value)> function) {
  TP_CHECK(static_cast<bool>(function), "remap_variables", "there is no function. Pass one.");
  return VariableGetterScope([function = std::move(function)](const std::string& name,
                                                              VariableOptions variable,
                                                              const NextGetter& next) {
    const at::Tensor value = next(variable);
    if (variable.role != VariableRole::kTrainable) return value;  // statistics are written in place
    at::Tensor mapped = function(name, value);
    TP_CHECK(mapped.defined() && mapped.sizes() == value.sizes(), "remap_variables",
             "the function changed the shape of '{}' from [{}]. Return a tensor of that shape.",
             name, fmt::join(value.sizes(), ", "));
    return mapped;
  });
}

}  // namespace tensorpack
