// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// Stacks datapoints; if there is a padding, after filling them up to the largest of each
/// dimension.
DataPoint stack(const std::vector<DataPoint>& points, std::optional<double> padding);

}  // namespace tensorpack::detail
