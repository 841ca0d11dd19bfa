// SPDX-License-Identifier: Apache-2.0
// What stands in for device_launcher.cpp when libtorch has no CUDA.
#include "tensorpack/cuda/kernels/device_launcher.h"

namespace tensorpack::cuda {

const Launcher* device_launcher() { return nullptr; }

}  // namespace tensorpack::cuda
