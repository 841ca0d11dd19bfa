// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/detail/host_copies.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <set>

namespace tensorpack {

c10::Stream HostCopies::stream_to(c10::Device device) {
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  const c10::impl::VirtualGuardImpl backend(device.type());
  return streams_.emplace(device.index(), backend.getStreamFromGlobalPool(device)).first->second;
}

FetchedValues HostCopies::start(std::vector<at::Tensor> values) {
  std::set<c10::DeviceIndex> devices;
  for (const at::Tensor& value : values) {
    if (value.is_cuda()) devices.insert(value.device().index());
  }
  FetchedValues::Arrivals arrivals;
  for (const c10::DeviceIndex index : devices) {
    const c10::Device device(at::kCUDA, index);
    const c10::Stream stream = stream_to(device);
    c10::Event computed(device.type());
    computed.record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    computed.block(stream);
    const c10::StreamGuard on_copy_stream(stream);
    for (at::Tensor& value : values) {
      if (!value.is_cuda() || value.device() != device) continue;
      value.record_stream(stream);
      value = value.to(at::kCPU, value.scalar_type(), /*non_blocking=*/true);  // pinned
    }
    auto arrival = std::make_shared<c10::Event>(device.type());
    arrival->record(stream);
    arrivals.push_back(std::move(arrival));
  }
  return FetchedValues(std::move(values), std::move(arrivals));
}

}  // namespace tensorpack
