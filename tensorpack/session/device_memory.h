// SPDX-License-Identifier: Apache-2.0
// What tensors take of the memory of devices, by libtorch's own books.
#pragma once

#include <cstdint>
#include <vector>

namespace tensorpack {

/// The most bytes that tensors of this process had at once, on each CUDA device that it sees, since
/// reset_peak_device_memory(). 0 for devices that were not used; empty without CUDA.
std::vector<int64_t> peak_device_memory();

/// Starts anew, from what is in use now.
void reset_peak_device_memory();

}  // namespace tensorpack
