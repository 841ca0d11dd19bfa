// SPDX-License-Identifier: Apache-2.0
// Scalars of the training tower that are worth watching.
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/graph/graph.h"

namespace tensorpack {

struct MovingSummaryOptions {
  /// How much of the average is kept at each run, in [0, 1).
  double decay = 0.95;
};

/// Keeps a moving average of a scalar under `name`, for MergeAllSummaries to report.
///
/// Called in a tower function; does nothing but in the first training tower. The average is updated
/// by the op itself, at every run, in the variable `EMA/<name>`, which is not saved; the first
/// value counts in full. Throws Error when the tensor is not a scalar or the name is taken.
void add_moving_summary(const std::string& name, const at::Tensor& scalar,
                        MovingSummaryOptions options = {});

/// The same for tensors that have a name: `add_moving_summary(cost, accuracy)`. Throws Error for
/// one that was not given to named().
template <std::same_as<at::Tensor>... Tensors>
void add_moving_summary(const at::Tensor& first, const Tensors&... others);

/// The newest value of every moving average of the graph that has one, by name.
std::vector<std::pair<std::string, double>> moving_summaries(const Graph& graph);

namespace detail {
void add_named_moving_summary(const at::Tensor& scalar);
}

template <std::same_as<at::Tensor>... Tensors>
void add_moving_summary(const at::Tensor& first, const Tensors&... others) {
  detail::add_named_moving_summary(first);
  (detail::add_named_moving_summary(others), ...);
}

}  // namespace tensorpack
