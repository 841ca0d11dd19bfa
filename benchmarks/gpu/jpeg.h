// SPDX-License-Identifier: Apache-2.0
// JPEGs from files, for the benchmarks of a GPU.
#pragma once

#include "benchmarks/bench.h"
#include "tensorpack/dataflow/image/image_batch.h"
#include "tensorpack/dataflow/image/labeled_files.h"

namespace tensorpack::bench {

/// The files in the folder TENSORPACK_BENCH_JPEGS, without end, with labels below `classes`.
DataFlowPtr jpeg_files(int64_t classes);

/// Random parts of them as bytes, made by TENSORPACK_BENCH_THREADS or on all cores.
ImageBatchOptions jpeg_options(int64_t size, bool channels_last);

/// `gpu/nvjpeg_vs_cpu`: batches decoded on the device against those of image_batch(), both copied
/// to the device, with nothing else to do.
void add_jpeg_benchmarks(Suite& suite);

}  // namespace tensorpack::bench
