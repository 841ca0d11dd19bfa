// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

#include "benchmarks/gpu/task.h"

namespace tensorpack::bench {

/// Trains as a peer process does, and answers what peers/gpu.py answers; returns at the end of the
/// input.
void serve_gpu_task(const GpuTask& task, c10::Device device);

}  // namespace tensorpack::bench
