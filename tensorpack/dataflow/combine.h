// SPDX-License-Identifier: Apache-2.0
// One flow out of several.
//
//   DataFlowPtr both = concat({FashionMnist("train"), FashionMnist("test")}) | batch(128);
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// Pass p is pass p of the first flow, then that of the second, and so on.
DataFlowPtr concat(OwnedList<DataFlow> flows);

struct JoinOptions {
  /// Whether a pass ends with the shortest flow; otherwise it is an error if one ends before
  /// another.
  bool shortest = false;
};

/// Makes one datapoint out of one of each flow: the components of the first, then those of the
/// second, and so on. Others call it zip.
DataFlowPtr join(OwnedList<DataFlow> flows, JoinOptions options = {});

struct RandomChooseOptions {
  /// How likely each flow is; need not sum up to 1. By default all are equally likely.
  std::vector<double> weights = {};
  std::optional<uint64_t> seed = {};
};

/// Takes every datapoint from a flow chosen at random. The pass ends when the chosen one ends.
DataFlowPtr random_choose(OwnedList<DataFlow> flows, RandomChooseOptions options = {});

struct RandomMixOptions {
  std::optional<uint64_t> seed = {};
};

/// All datapoints of all flows, those of each in its order, mixed so that every way to do that is
/// equally likely. Throws Error if a flow does not know its size.
DataFlowPtr random_mix(OwnedList<DataFlow> flows, RandomMixOptions options = {});

}  // namespace tensorpack
