// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

struct MultiHeadAttentionOptions {
  std::optional<int64_t> heads = {};   ///< required: divides the features of the query
  std::optional<bool> causal = {};     ///< false: true hides what comes after a token
  std::optional<double> dropout = {};  ///< 0, of the attention, in training mode
  std::optional<bool> use_bias = {};   ///< true
  /// Broadcast to [N, heads, T, S]: numbers to add to the scores, or true where a token may look.
  std::optional<at::Tensor> mask = {};
  std::optional<Initializer> kernel_init = {};  ///< init::xavier_uniform()

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(heads, causal, dropout, use_bias, mask, kernel_init);
  }
};

/// Attention of `query` [N, T, E] to `key` and `value` [N, S, *]; the result is [N, T, E].
/// Variables `q/W`, `k/W`, `v/W` and `out/W` [E, *], and `b` beside each.
at::Tensor MultiHeadAttention(const std::string& name, const at::Tensor& query,
                              const at::Tensor& key, const at::Tensor& value,
                              MultiHeadAttentionOptions options);

/// Attention of a sequence to itself.
at::Tensor MultiHeadAttention(const std::string& name, const at::Tensor& input,
                              MultiHeadAttentionOptions options);

}  // namespace tensorpack
