// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>

namespace tensorpack {

/// The same device with its index filled in: "cuda" is the current GPU. Throws an Error when this
/// machine, or this libtorch, does not have it.
c10::Device check_device(c10::Device device);

/// How many devices of this kind can be seen: 0 where this libtorch was built without them.
int count_devices(c10::DeviceType type);

}  // namespace tensorpack
