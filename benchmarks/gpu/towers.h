// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "benchmarks/bench.h"

namespace tensorpack::bench {

/// `gpu/resnet50_two_towers_vs_one` and `gpu/resnet50_nccl_one_rank_vs_none`: what it costs to have
/// several towers, and to exchange gradients, where one GPU does all.
void add_towers_benchmarks(Suite& suite);

}  // namespace tensorpack::bench
