// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

using MapFunction = std::function<std::optional<DataPoint>(DataPoint)>;

namespace detail {
Stage map_stage(MapFunction function, bool keeps_all);
}

/// Applies `function` to every datapoint; one that returns std::optional drops those it maps to
/// nullopt, and the size of the result is then not known. What it throws reaches the consumer.
///
/// A function that drops nothing is not called for datapoints that are skipped: what it returns
/// should depend on the datapoint alone.
template <std::invocable<DataPoint> Function>
Stage map(Function function) {
  using Result = std::invoke_result_t<Function&, DataPoint>;
  constexpr bool keeps_all = std::same_as<Result, DataPoint>;
  static_assert(
      keeps_all || std::same_as<Result, std::optional<DataPoint>>,
      "map: the function must return DataPoint, or std::optional<DataPoint> to drop some");
  return detail::map_stage(std::move(function), keeps_all);
}

}  // namespace tensorpack
