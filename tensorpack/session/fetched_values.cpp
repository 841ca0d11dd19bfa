// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/fetched_values.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "tensorpack/graph/torch_compat.h"

namespace tensorpack {

FetchedValues::FetchedValues(std::vector<at::Tensor> values,
                             std::shared_ptr<const c10::Event> arrival)
    : values_(std::move(values)), arrival_(std::move(arrival)) {}

const std::vector<at::Tensor>& FetchedValues::get() const {
  if (arrival_) wait_for(*arrival_);
  return values_;
}

FetchedValues FetchedValues::slice(size_t begin, size_t end) const {
  const auto first = values_.begin();
  return FetchedValues(
      {first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end)},
      arrival_);
}

FetchedValues HostCopies::start(std::vector<at::Tensor> values) {
  const auto remote = std::find_if(values.begin(), values.end(),
                                   [](const at::Tensor& value) { return value.is_cuda(); });
  if (remote == values.end()) return FetchedValues(std::move(values));
  const c10::Device device = remote->device();
  const c10::impl::VirtualGuardImpl backend(device.type());
  if (!stream_) stream_ = backend.getStreamFromGlobalPool(device);

  c10::Event computed(device.type());
  computed.record(backend.getStream(device));
  computed.block(*stream_);
  const c10::StreamGuard on_copy_stream(*stream_);
  for (at::Tensor& value : values) {
    if (!value.is_cuda()) continue;
    value.record_stream(*stream_);
    value = value.to(at::kCPU, value.scalar_type(), /*non_blocking=*/true);  // pinned
  }
  auto arrival = std::make_shared<c10::Event>(device.type());
  arrival->record(*stream_);
  return FetchedValues(std::move(values), std::move(arrival));
}

}  // namespace tensorpack
