// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/pass_order.h"

#include <algorithm>

#include "tensorpack/dataflow/rng.h"

namespace tensorpack::detail {

PassOrder::PassOrder(int64_t size, bool shuffle, std::optional<uint64_t> seed)
    : size_(size), shuffle_(shuffle), seed_(seed_or_next(seed)) {
  start(0);
}

void PassOrder::start(int64_t pass) {
  position_ = 0;
  if (!shuffle_) return;
  Rng rng(seed_, pass);
  order_ = random_permutation(size_, rng);
}

std::optional<int64_t> PassOrder::next() {
  if (position_ == size_) return std::nullopt;
  const int64_t position = position_++;
  return shuffle_ ? order_[position] : position;
}

int64_t PassOrder::skip(int64_t count) {
  count = std::min(count, size_ - position_);
  position_ += count;
  return count;
}

}  // namespace tensorpack::detail
