// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/dataflow/map.h"

namespace tensorpack {

struct ParallelMapOptions {
  /// 0: as many as cores that this process may use.
  int64_t threads = 0;
  /// Datapoints in work or waiting to be taken; 0: four for every thread.
  int64_t capacity = 0;
  /// Whether the results come in the order of the flow. The sequence is then the same whatever the
  /// number of threads. Otherwise whatever is ready comes first, which helps when some datapoints
  /// take much longer than others.
  bool ordered = true;
  OnError on_error = OnError::kThrow;
  std::optional<uint64_t> seed = {};
  std::string name = "parallel_map";  ///< of the stage, in errors and tables
};

namespace detail {
Stage parallel_map_stage(MapWork work, ParallelMapOptions options);
Stage map_and_batch_stage(MapWork work, int64_t size, bool remainder, ParallelMapOptions options);
}  // namespace detail

/// As map(), on several threads at once. The function is called by all of them.
///
/// What it throws reaches the consumer as an Error that names the stage and the datapoint, with the
/// original nested in it (std::rethrow_if_nested), in the place of the datapoint; the pass goes on
/// after it.
template <MapsDataPoints Function>
Stage parallel_map(Function function, ParallelMapOptions options = {}) {
  return detail::parallel_map_stage(detail::map_work(std::move(function)), options);
}

struct MapAndBatchOptions {
  int64_t threads = 0;
  /// Batches in work or waiting to be taken.
  int64_t capacity = 2;
  /// Whether the datapoints left over at the end of a pass make a last, smaller batch.
  bool remainder = false;
  OnError on_error = OnError::kThrow;
  std::optional<uint64_t> seed = {};
  std::string name = {};  ///< in errors and tables, if not that of the stage
};

/// As parallel_map() and batch() behind it, but each thread copies what it made into its row of the
/// batch, so that no thread has to copy all.
///
/// A function that drops datapoints, or fails where that is skipped, leaves no rows empty: then it
/// is a parallel_map() and a batch().
template <MapsDataPoints Function>
Stage map_and_batch(Function function, int64_t size, MapAndBatchOptions options = {}) {
  return detail::map_and_batch_stage(
      detail::map_work(std::move(function)), size, options.remainder,
      {.threads = options.threads,
       .capacity = options.capacity,
       .on_error = options.on_error,
       .seed = options.seed,
       .name = options.name.empty() ? "map_and_batch" : options.name});
}

/// The first component of the batches of fill_batch().
struct FilledComponent {
  std::vector<int64_t> shape = {};  ///< of a row
  at::ScalarType dtype = at::kFloat;
  /// Whether a batch of images [n, channels, height, width] lies in memory pixel by pixel.
  bool channels_last = false;
};

/// Writes one row of a batch, with no more in it than was there before, and returns the components
/// that follow it.
using FillFunction = std::function<DataPoint(DataPoint point, Rng& rng, at::Tensor& row)>;

/// As map_and_batch(), but the function writes its result straight into the batch's memory: for
/// results that are large and quickly made, such as images.
Stage fill_batch(FilledComponent component, FillFunction fill, int64_t size,
                 MapAndBatchOptions options = {});

}  // namespace tensorpack
