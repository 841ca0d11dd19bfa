// SPDX-License-Identifier: Apache-2.0
// The text of pointwise kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "tensorpack/cuda/jit.h"
#include "tensorpack/cuda/kernels/formula.h"

namespace tensorpack::cuda {

struct Dimension {
  int64_t size = 1;
  int64_t stride = 1;
};
/// From one element to the next in the results' order, outermost first; empty for one element.
using Walk = std::vector<Dimension>;

struct PointwisePlan {
  Formula formula = {};
  int width = 1;                            ///< neighbouring elements of one thread
  std::vector<c10::ScalarType> types = {};  ///< of the inputs
  std::vector<Walk> walks = {};             ///< over the inputs
  std::vector<char> aligned = {};           ///< the inputs whose memory begins where a vector may
  bool is_large = false;                    ///< positions do not fit into 32 bits
};

/// pointwise(inputs..., results..., long long elements)
KernelSource pointwise_source(const PointwisePlan& plan);
/// pointwise_sum(inputs..., results..., sums, float2* partial, unsigned* counters, long long rows,
/// int columns)
KernelSource pointwise_sum_source(const PointwisePlan& plan, c10::ScalarType sums);

}  // namespace tensorpack::cuda
