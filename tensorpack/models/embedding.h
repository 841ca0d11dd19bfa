// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

struct EmbeddingOptions {
  std::optional<int64_t> vocabulary = {};  ///< required: ids are below it
  std::optional<int64_t> features = {};    ///< required
  std::optional<Initializer> init = {};    ///< init::normal(1)

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(vocabulary, features, init);
  }
};

/// The row of `W` [vocabulary, features] for each id of an integer tensor of any shape.
at::Tensor Embedding(const std::string& name, const at::Tensor& ids, EmbeddingOptions options);

}  // namespace tensorpack
