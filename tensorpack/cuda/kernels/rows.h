// SPDX-License-Identifier: Apache-2.0
// Tensors whose rows a block keeps on chip. See Note [Rows on chip].
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// What a block may keep: a little less than all shared memory of compute capability 9.0.
inline constexpr int64_t kLargestRowBytes = 200 << 10;

struct RowPlan {
  c10::ScalarType type = c10::kFloat;
  int64_t columns = 0;
  int width = 1;     ///< neighbouring elements of one thread
  int threads = 32;  ///< of a block

  int64_t row_bytes() const { return columns * static_cast<int64_t>(c10::elementSize(type)); }
};

/// The plan for contiguous tensors with rows as long as the first one's, of any types.
RowPlan plan_rows(const std::vector<at::Tensor>& tensors);

/// Device code: sum_of_block(v) and max_of_block(v), for kThreads threads.
std::string row_sums();
/// Device code: `dynamic_shared`, the memory asked for at the launch.
std::string dynamic_shared();

}  // namespace tensorpack::cuda
