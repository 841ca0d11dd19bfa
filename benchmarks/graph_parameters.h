// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::bench {

/// Parameters as variables of the graph.
struct GraphParameters {
  at::Tensor weight(const std::string& name, at::IntArrayRef shape) {
    return get_variable(name, shape,
                        {.init = init::he_normal(), .channels_last = true});  // as Conv2D does
  }
  at::Tensor bias(const std::string& name, int64_t size) { return get_variable(name, {size}); }
  at::Tensor scale(const std::string& name, int64_t size) {
    return get_variable(name, {size}, init::ones());
  }
  at::Tensor statistic(const std::string& name, int64_t size, double first) {
    return get_variable(name, {size},
                        {.init = init::constant(first), .role = VariableRole::kModel});
  }
};

}  // namespace tensorpack::bench
