// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/rng.h"

#include <numeric>
#include <utility>

namespace tensorpack {

Rng::Rng(uint64_t seed, int64_t pass) : state_(derive_seed(seed, static_cast<uint64_t>(pass))) {}

uint64_t Rng::operator()() { return mix_bits(state_ += 0x9e3779b97f4a7c15); }

uint64_t Rng::below(uint64_t bound) {
  // The lowest `skip` values would make the small remainders more likely than the others.
  const uint64_t skip = -bound % bound;
  uint64_t value = (*this)();
  while (value < skip) value = (*this)();
  return value % bound;
}

std::vector<int64_t> random_permutation(int64_t size, Rng& rng) {
  std::vector<int64_t> order(size);
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = size - 1; i > 0; --i) std::swap(order[i], order[rng.below(i + 1)]);
  return order;
}

}  // namespace tensorpack
