// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

namespace tensorpack {

/// The same device with its index filled in: "cuda" is the current GPU. Throws an Error when this
/// machine, or this libtorch, does not have it.
c10::Device check_device(c10::Device device);

}  // namespace tensorpack
