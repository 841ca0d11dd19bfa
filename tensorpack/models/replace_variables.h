// SPDX-License-Identifier: Apache-2.0
// Layers that use something else than the variables they ask for.
//
//   auto quantised = remap_variables([](const std::string& name, const Tensor& value) {
//     return name.ends_with("/W") ? quantise(value) : value;
//   });
#pragma once

#include <functional>
#include <string>

#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct FreezeOptions {
  bool stop_gradient = true;  ///< no gradient reaches them
  /// Not trained at all: VariableRole::kModel instead of kTrainable. Counts when they are created.
  bool as_model_variables = false;
};

/// While the result lives, trainable variables asked for on this thread do not change, and a
/// BatchNorm normalises by its moving statistics and leaves them as they are. With `stop_gradient`
/// alone, what does not pass through the layers, such as weight decay, still changes the variables.
[[nodiscard]] VariableGetterScope freeze_variables(FreezeOptions options = {});

/// While the result lives, layers on this thread get `function(name, variable)` in place of each
/// trainable variable. Gradients go through the function to the variable.
[[nodiscard]] VariableGetterScope remap_variables(
    std::function<at::Tensor(const std::string& name, const at::Tensor& value)> function);

}  // namespace tensorpack
