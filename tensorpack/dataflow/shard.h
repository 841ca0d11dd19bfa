// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct ShardOptions {
  /// Which part, of how many; by default those of this process among the ones started together, so
  /// that a program that runs alone gets all.
  std::optional<int> rank = {};
  std::optional<int> size = {};
  /// Parts are equally long: what is left over at the end of a pass is left out. Otherwise the
  /// first parts may have one datapoint more, as suits inference, where all must be seen.
  bool equal = true;
};

/// Keeps every size-th datapoint, beginning with number `rank`.
///
///   FashionMnist("train") | shard() | shuffle(10'000) | batch(128)
///
/// Early in the pipeline it saves the work of reading what other processes train on. What stands
/// before it must yield the same in all processes. Stages without a seed of their own do: in a
/// training they follow from the chief's. Functions of map() and its relatives draw as for the
/// datapoint before shard(), other numbers in each process.
Stage shard(ShardOptions options = {});

}  // namespace tensorpack
