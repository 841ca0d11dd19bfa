// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {

c10::Device check_device(c10::Device device) {
  if (device.is_cpu()) return device;
  TP_CHECK(c10::impl::hasDeviceGuardImpl(device.type()), "device",
           "'{}' cannot be used: this libtorch was built without it. Install a libtorch that has "
           "it, or use the CPU.",
           device.str());
  const int count = count_devices(device.type());
  TP_CHECK(count > 0, "device",
           "'{}' cannot be used: no such device can be seen. Check nvidia-smi and "
           "CUDA_VISIBLE_DEVICES, or use the CPU.",
           device.str());
  if (!device.has_index()) device = c10::impl::VirtualGuardImpl(device.type()).getDevice();
  TP_CHECK(device.index() < count, "device",
           "'{}' cannot be used: there are {}, counted from 0. Choose one of them.", device.str(),
           count);
  return device;
}

int count_devices(c10::DeviceType type) {
  if (!c10::impl::hasDeviceGuardImpl(type)) return 0;
  return c10::impl::VirtualGuardImpl(type).deviceCount();
}

}  // namespace tensorpack
