// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensorpack/utils/seed.h"

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
  int64_t at(int64_t position);

  int64_t size_;
  bool shuffle_;
  StageSeed seed_;
  int64_t pass_ = 0;
  std::vector<int64_t> order_;  // of this pass, once an element was asked for
  int64_t position_ = 0;
};

}  // namespace tensorpack::detail
