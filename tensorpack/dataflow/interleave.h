// SPDX-License-Identifier: Apache-2.0
// Several flows read at once.
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// Makes the flow that a datapoint stands for, for example that of the file it names.
using OpenFlow = std::function<DataFlowPtr(const DataPoint&)>;

struct InterleaveOptions {
  /// How many flows are open at a time.
  int64_t cycle = 4;
  /// How many datapoints each is read ahead, on a thread of its own; 0: without threads.
  int64_t prefetch = 16;
};

/// Opens a flow for every datapoint and takes one datapoint of each of the open ones in turn. Where
/// one ends, the next is opened in its place.
///
/// The sequence does not depend on how fast the flows are.
Stage interleave(OpenFlow open, InterleaveOptions options = {});

struct CopiesOptions {
  int64_t copies = 2;
  /// How many datapoints each is read ahead.
  int64_t prefetch = 16;
};

/// Runs several flows, each on a thread of its own, and takes a datapoint of each in turn; a pass
/// is a pass of all of them.
///
///   run_multiple_copies([](int64_t copy) { return simulator(seed + copy) | map(render); })
///
/// `make` is called with 0, 1, ... and should make flows that differ: with the same data in each,
/// all would come several times. parallel_map() needs no copies.
DataFlowPtr run_multiple_copies(const std::function<DataFlowPtr(int64_t copy)>& make,
                                CopiesOptions options = {});

}  // namespace tensorpack
