// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace tensorpack::detail {

/// The order in which the elements of a data set come: as they are, or shuffled anew in each pass.
class PassOrder {
 public:
  /// Stands at the beginning of pass 0.
  PassOrder(int64_t size, bool shuffle, std::optional<uint64_t> seed);

  void start(int64_t pass);

  /// The number of the next element; nullopt at the end of the pass.
  std::optional<int64_t> next();

  /// Passes over `count` elements, fewer at the end of the pass, and returns how many.
  int64_t skip(int64_t count);

  int64_t size() const { return size_; }

 private:
  int64_t size_;
  bool shuffle_;
  uint64_t seed_;
  std::vector<int64_t> order_;
  int64_t position_ = 0;
};

}  // namespace tensorpack::detail
