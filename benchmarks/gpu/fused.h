// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "benchmarks/bench.h"

namespace tensorpack::bench {

/// `gpu/fused_<template>_bandwidth`: the time of a copy that moves as many bytes as the fused
/// kernels must, over theirs. `gpu/fused_cast_vs_libtorch`: the time of libtorch's casts of the
/// same tensors over that of ours.
void add_fused_benchmarks(Suite& suite);

}  // namespace tensorpack::bench
