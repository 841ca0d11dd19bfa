// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/pass_order.h"

#include <algorithm>

#include "tensorpack/dataflow/rng.h"

namespace tensorpack::detail {

PassOrder::PassOrder(int64_t size, bool shuffle, std::optional<uint64_t> seed)
    : size_(size), shuffle_(shuffle), seed_(seed) {}

void PassOrder::start(int64_t pass) {
  pass_ = pass;
  position_ = 0;
  order_.clear();
}

std::optional<int64_t> PassOrder::next() {
  if (position_ == size_) return std::nullopt;
  return at(position_++);
}

int64_t PassOrder::at(int64_t position) {
  if (!shuffle_) return position;
  if (order_.empty()) {
    Rng rng(seed_.value(), pass_);
    order_ = random_permutation(size_, rng);
  }
  return order_[position];
}

int64_t PassOrder::skip(int64_t count) {
  count = std::min(count, size_ - position_);
  position_ += count;
  return count;
}

}  // namespace tensorpack::detail
