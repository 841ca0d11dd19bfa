// SPDX-License-Identifier: Apache-2.0
// What all generated kernels begin with.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

namespace tensorpack::cuda {

/// Bytes that a thread loads or stores at a time, at most.
inline constexpr int kLargestLoad = 16;

/// The types a kernel can load and store: float, bfloat16, half.
bool has_kernel_type(c10::ScalarType type);
/// Its name in a kernel: "float", "bf16", "f16".
std::string kernel_type(c10::ScalarType type);

/// Vectors of these types, conversions, sums over blocks. No headers are included; the text is also
/// C++ that a host's compiler takes, given the few names a device has built in.
std::string prelude();

}  // namespace tensorpack::cuda
