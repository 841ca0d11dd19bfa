// SPDX-License-Identifier: Apache-2.0
// Checksums of tensors, to compare what is equal in many places.
//
// Note [Checksums of variables]
// On the host it is XXH64, which reads 7.7 GB/s on one core. What is on another device is added up
// there, because copying it to the host would take longer (an H200 reads 1 GB in 3.3 ms): the bits
// as integers, each times a weight that depends on its place. Integers are added up exactly, in
// whatever order a device does, so that the same bits always give the same checksum; any one bit
// that differs changes it. Only operators of libtorch are used, which every device has.
#pragma once

#include <cstdint>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Of the elements of each, bit by bit, in their logical order. Those of one call can be compared
/// with each other, wherever the tensors are, and with those of another call for tensors on the
/// same kinds of devices. Waits for each device once.
std::vector<uint64_t> checksums(const std::vector<at::Tensor>& tensors);

namespace detail {

/// What is done where not all tensors are on the host, for tensors that share a device.
std::vector<uint64_t> checksums_by_sums(const std::vector<at::Tensor>& tensors);

}  // namespace detail

}  // namespace tensorpack
