// SPDX-License-Identifier: Apache-2.0
// Recurrent networks over libtorch's: its weight layouts, numbers and variable names.
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

/// Where a recurrent network stands after a sequence, or starts: [layers * directions, N, units].
struct RecurrentState {
  at::Tensor hidden = {};
  at::Tensor cell = {};  ///< of an LSTM alone
};

struct RecurrentOptions {
  std::optional<int64_t> units = {};         ///< required
  std::optional<int64_t> layers = {};        ///< 1
  std::optional<bool> bidirectional = {};    ///< false
  std::optional<double> dropout = {};        ///< 0, between layers and in training mode
  std::optional<bool> batch_first = {};      ///< false: the input is [T, N, features]
  std::optional<bool> use_bias = {};         ///< true
  std::optional<Initializer> init = {};      ///< uniform in +-1 / sqrt(units)
  std::optional<RecurrentState> start = {};  ///< zeros

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(units, layers, bidirectional, dropout, batch_first, use_bias, init,
                                 start);
  }
};

struct RecurrentOutput {
  at::Tensor output = {};  ///< every step: [T, N, units * directions]
  RecurrentState state = {};
};

/// A long short-term memory. Variables `weight_ih_l<k>`, `weight_hh_l<k>`, `bias_ih_l<k>` and
/// `bias_hh_l<k>`, with `_reverse` for the second direction.
RecurrentOutput LSTM(const std::string& name, const at::Tensor& input, RecurrentOptions options);

/// A gated recurrent unit; the variables are named as those of LSTM().
RecurrentOutput GRU(const std::string& name, const at::Tensor& input, RecurrentOptions options);

}  // namespace tensorpack
