// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tensorpack {

class DataFlow;

namespace detail {

/// Which datapoints of a larger flow a flow has: every `size`-th, from number `rank` on. That is
/// what shard() does, and what stages behind it take over.
struct Part {
  int64_t size = 1;
  int64_t rank = 0;

  /// The number in all parts together of what has this number in the part.
  int64_t number_in_all(int64_t number) const { return number * size + rank; }

  /// A part of this part.
  Part part(int64_t inner_rank, int64_t inner_size) const {
    return {size * inner_size, number_in_all(inner_rank)};
  }
};

/// The part that a flow is of what its sources have, if the flow or a stage before it was joined
/// with `|`.
Part part_of(const DataFlow& flow);

}  // namespace detail
}  // namespace tensorpack
