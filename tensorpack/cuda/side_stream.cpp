// SPDX-License-Identifier: Apache-2.0
// The operators of Note [A side stream] on CUDA. Captured, forks and joins are edges of the graph.
#include "tensorpack/cuda/side_stream.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <map>
#include <optional>
#include <utility>

#include "tensorpack/cuda/stream_order.h"

namespace tensorpack::cuda {
namespace {

using c10::cuda::CUDAStream;

// Of this thread: programs that run at once have one each.
CUDAStream side_of(c10::DeviceIndex device) {
  thread_local std::map<c10::DeviceIndex, CUDAStream> streams;
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device))
      .first->second;
}

thread_local std::optional<CUDAStream> left;  // while the side stream is the current one

// When what was issued under this number ends. A number that is used again is recorded anew.
at::cuda::CUDAEvent& end_of(c10::DeviceIndex device, int64_t number) {
  thread_local std::map<std::pair<c10::DeviceIndex, int64_t>, at::cuda::CUDAEvent> ends;
  return ends[{device, number}];
}

void begin_side_stream(at::TensorList tensors, int64_t) {
  const CUDAStream side = side_of(tensors[0].device().index());
  left = c10::cuda::getCurrentCUDAStream(side.device_index());
  order(*left, side);
  c10::cuda::setCurrentCUDAStream(side);
}

void end_side_stream(at::TensorList tensors, int64_t number) {
  const c10::DeviceIndex device = tensors[0].device().index();
  end_of(device, number).record(side_of(device));
  c10::cuda::setCurrentCUDAStream(*left);
  left.reset();
}

void join_side_stream(at::TensorList tensors, int64_t number) {
  const c10::DeviceIndex device = tensors[0].device().index();
  end_of(device, number).block(c10::cuda::getCurrentCUDAStream(device));
}

}  // namespace

void link_side_stream() {}

TORCH_LIBRARY_IMPL(tensorpack, CUDA, library) {
  library.impl("begin_side_stream", begin_side_stream);
  library.impl("end_side_stream", end_side_stream);
  library.impl("join_side_stream", join_side_stream);
}

}  // namespace tensorpack::cuda
