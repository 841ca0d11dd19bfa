// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/graph/variable_store.h"

namespace tensorpack {

/// What is trained, for monitors that show it.
struct RunSetup {
  const VariableStore& variables;
  /// Those that a step named, the outputs of layers among them; the first dimension is that of the
  /// trial batch.
  std::map<std::string, TensorSpec> tensors = {};
};

}  // namespace tensorpack
