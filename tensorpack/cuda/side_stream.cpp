// SPDX-License-Identifier: Apache-2.0
// The operators of Note [Side streams] on CUDA. Captured, forks and joins are edges of the graph.
#include "tensorpack/cuda/side_stream.h"

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/library.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tensorpack::cuda {
namespace {

using c10::cuda::CUDAStream;

// Of this thread: programs that run at once have one each.
CUDAStream side_of(c10::DeviceIndex device, int64_t number) {
  thread_local std::map<std::pair<c10::DeviceIndex, int64_t>, CUDAStream> streams;
  const auto found = streams.find({device, number});
  if (found != streams.end()) return found->second;
  const CUDAStream fresh = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
  return streams.emplace(std::pair(device, number), fresh).first->second;
}

thread_local std::optional<CUDAStream> left;  // while the side stream is the current one

void order(CUDAStream before, CUDAStream after) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(after);
}

void begin_side_stream(at::TensorList tensors, int64_t stream) {
  const CUDAStream side = side_of(tensors[0].device().index(), stream);
  left = c10::cuda::getCurrentCUDAStream(side.device_index());
  order(*left, side);
  c10::cuda::setCurrentCUDAStream(side);
}

void end_side_stream(at::TensorList, int64_t) {
  c10::cuda::setCurrentCUDAStream(*left);
  left.reset();
}

void join_side_stream(at::TensorList tensors, int64_t stream) {
  std::set<c10::DeviceIndex> devices;
  for (const at::Tensor& tensor : tensors) devices.insert(tensor.device().index());
  for (const c10::DeviceIndex device : devices) {
    order(side_of(device, stream), c10::cuda::getCurrentCUDAStream(device));
  }
}

}  // namespace

void link_side_stream() {}

TORCH_LIBRARY_IMPL(tensorpack, CUDA, library) {
  library.impl("begin_side_stream", begin_side_stream);
  library.impl("end_side_stream", end_side_stream);
  library.impl("join_side_stream", join_side_stream);
}

}  // namespace tensorpack::cuda
