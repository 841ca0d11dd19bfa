// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct BatchOptions {
  /// Whether the datapoints left over at the end of a pass make a last, smaller batch.
  bool remainder = false;
  /// If set, components of different shapes are filled up with this value, at the end of each
  /// dimension, to the largest of the batch.
  std::optional<double> padding = {};
};

/// Stacks `size` datapoints into one: every component gets a new first dimension.
///
/// Throws Error where the pipe is built if a pass is known to be too short for a single batch, and
/// in next() if the datapoints of a batch differ in the number, shape or type of their components.
Stage batch(int64_t size, BatchOptions options = {});

/// Makes batches of datapoints that have the same key, for example sequences of similar length. A
/// batch comes when the last of its datapoints has come.
///
/// What is left over at the end of a pass makes smaller batches, by ascending key, if there is a
/// remainder; otherwise it is left out.
Stage batch_by_key(int64_t size, std::function<int64_t(const DataPoint&)> key,
                   BatchOptions options = {});

/// Makes batches of datapoints whose component at place `index` has the same shape.
Stage batch_by_shape(int64_t size, size_t index = 0, BatchOptions options = {});

}  // namespace tensorpack
