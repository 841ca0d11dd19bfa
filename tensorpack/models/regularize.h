// SPDX-License-Identifier: Apache-2.0
// Costs that keep weights small.
//
//   cost = cost + regularize_cost("fc.*/W", l2_regularizer(1e-4));
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The cost of one weight, a scalar.
using Regularizer = std::function<at::Tensor(const at::Tensor& weight)>;

/// scale * sum(|w|).
Regularizer l1_regularizer(double scale);
/// scale * 0.5 * sum(w^2).
Regularizer l2_regularizer(double scale);

/// The sum of `func` over the trainable variables of the current tower whose name contains a match
/// of the regular expression; a zero in prediction mode, or without a match. Named `name`. Logs
/// what it matched, once. It is part of no cost until it is added to one.
[[nodiscard]] at::Tensor regularize_cost(const std::string& regex, const Regularizer& func,
                                         const std::string& name = "regularize_cost");

/// The sum of what layers with a `.kernel_regularizer`, `.bias_regularizer` or
/// `.activity_regularizer` added in this call; a zero if none did. A kernel that several layers
/// share is regularized once, by the first of their regularizers whose layer is not frozen.
///
/// Call it in a statement of its own, behind the layers: of `model(x) + this` in one expression,
/// C++ does not say which is evaluated first, and compilers differ.
[[nodiscard]] at::Tensor regularize_cost_from_collection(
    const std::string& name = "regularize_cost");

namespace detail {
/// Called by layers: adds the cost of `weight`, the variable `name` of the current scope, to
/// Collection::kRegularizationLosses in training.
void add_regularization(const std::optional<Regularizer>& regularizer, const std::string& name,
                        const at::Tensor& weight);
/// The same of a layer's output, for every call.
void add_activity_regularization(const std::optional<Regularizer>& regularizer,
                                 const at::Tensor& output);
}  // namespace detail

}  // namespace tensorpack
