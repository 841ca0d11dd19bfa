// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/rng.h"

#include <numeric>
#include <utility>

namespace tensorpack {

std::vector<int64_t> random_permutation(int64_t size, Rng& rng) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
  return order;
}

}  // namespace tensorpack
