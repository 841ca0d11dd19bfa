// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

struct DropoutOptions {
  std::optional<double> rate = {};    ///< 0.5: the share that is set to zero
  std::optional<bool> training = {};  ///< as the tower

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(rate, training);
  }
};

/// Sets a random share of the input to zero and scales up the rest, in training mode.
at::Tensor Dropout(const std::string& name, const at::Tensor& input, DropoutOptions options = {});

}  // namespace tensorpack
