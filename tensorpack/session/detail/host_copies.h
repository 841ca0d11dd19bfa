// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <map>
#include <vector>

#include "tensorpack/session/fetched_values.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Brings values of a device to the host, in the background.
class HostCopies {
 public:
  /// `values` must belong to nobody else, or be on the host.
  FetchedValues start(std::vector<at::Tensor> values);

 private:
  c10::Stream stream_to(c10::Device device);

  std::map<c10::DeviceIndex, c10::Stream> streams_;  // made for a device's first value
};

}  // namespace tensorpack
