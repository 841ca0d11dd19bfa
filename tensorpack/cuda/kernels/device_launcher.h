// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/cuda/kernels/launcher.h"

namespace tensorpack::cuda {

/// Launches on the current stream of the current device; nullptr if kernels cannot be compiled
/// here, which the log tells once.
const Launcher* device_launcher();

}  // namespace tensorpack::cuda
