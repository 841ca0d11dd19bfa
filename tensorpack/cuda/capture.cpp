// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/capture.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include "tensorpack/utils/logger.h"

namespace tensorpack::cuda {
namespace {

// Other threads (which stage input) may allocate pinned memory meanwhile.
constexpr auto kMode = cudaStreamCaptureModeThreadLocal;

void try_to(const char* what, const std::function<void()>& action) {
  try {
    action();
  } catch (const std::exception& error) {
    log::debug("After a failed capture: cannot {}: {}", what, error.what());
  }
}

// Next to nothing, captured on the current stream.
void capture_little(at::cuda::CUDAGraph& graph, at::cuda::MempoolId_t pool) {
  graph.capture_begin(pool, kMode);
  const at::Tensor zero = at::zeros({1}, at::kCUDA);
  graph.capture_end();
}

// libtorch leaves a failed capture half open.
void abandon(const CaptureSpace& space) {
  cudaGraph_t broken = nullptr;
  cudaStreamEndCapture(space.stream, &broken);
  if (broken != nullptr) cudaGraphDestroy(broken);
  cudaGetLastError();  // clears it
  try_to("end allocating",
         [&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(space.device, space.pool); });
  try_to("end allocating on the host",
         [&] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(space.pool); });
  try_to("release the memory",
         [&] { c10::cuda::CUDACachingAllocator::releasePool(space.device, space.pool); });
  // The default generator still thinks it is being captured. A capture that ends well tells it that
  // it is not.
  try_to("reset the generator", [] {
    at::cuda::CUDAGraph small;
    capture_little(small, {0, 0});
  });
}

}  // namespace

CaptureSpace::CaptureSpace(c10::DeviceIndex device)
    : device(device),
      stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)),
      pool(at::cuda::graph_pool_handle()) {
  const c10::cuda::CUDAStreamGuard on_stream(stream);
  capture_little(keeper_, pool);
}

Capture::Capture(const CaptureSpace& space, const std::function<void()>& work) {
  const c10::cuda::CUDAStreamGuard on_stream(space.stream);
  c10::cuda::device_synchronize();
  // What earlier runs left in the cache would stand beside the memory of the capture.
  c10::cuda::CUDACachingAllocator::emptyCache();
  try {
    graph_.capture_begin(space.pool, kMode);
    work();
    graph_.capture_end();
  } catch (...) {
    abandon(space);
    throw;
  }
}

}  // namespace tensorpack::cuda
