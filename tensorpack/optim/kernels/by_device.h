// SPDX-License-Identifier: Apache-2.0
// Updates of variables that are kept on several devices: an operator works on one.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

namespace tensorpack::kernels {

/// The variables of one device, by their places in the lists of an update.
struct OnDevice {
  c10::Device device;
  std::vector<size_t> places = {};

  /// Their part of a list; of one that is not used, nothing.
  std::vector<at::Tensor> of(const std::vector<at::Tensor>& list) const {
    std::vector<at::Tensor> part;
    if (list.empty()) return part;
    for (const size_t place : places) part.push_back(list[place]);
    return part;
  }
  at::Tensor of(const at::Tensor& scalar) const { return scalar.to(device); }
};

/// Calls `update` for each device that has some of the variables.
template <typename Update>
void for_each_device(const std::vector<at::Tensor>& variables, const Update& update) {
  std::vector<OnDevice> devices;
  for (size_t i = 0; i < variables.size(); ++i) {
    const c10::Device device = variables[i].device();
    auto found = std::find_if(devices.begin(), devices.end(),
                              [&](const OnDevice& known) { return known.device == device; });
    if (found == devices.end()) found = devices.insert(devices.end(), {device});
    found->places.push_back(i);
  }
  for (const OnDevice& here : devices) update(here);
}

}  // namespace tensorpack::kernels
