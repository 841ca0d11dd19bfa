// SPDX-License-Identifier: Apache-2.0
// Work on a CUDA device that is issued once and launched as a whole from then on.
#pragma once

#include <ATen/cuda/CUDAGraph.h>
#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDAStream.h>

#include <functional>

namespace tensorpack::cuda {

/// Where captures happen: a stream that does nothing else, and memory they share. Captured work
/// that shares memory must be launched on one stream, as an executor does.
struct CaptureSpace {
  explicit CaptureSpace(c10::DeviceIndex device);

  c10::DeviceIndex device;
  c10::cuda::CUDAStream stream;
  at::cuda::MemPool memory;  // lives as long as the last capture in it
  c10::MempoolId_t pool;
};

/// What `work` issued to the device while it was captured.
class Capture {
 public:
  /// Calls `work`, which issues its kernels without running them. Throws what `work` or the capture
  /// threw, after the process has been brought back to a state in which it can go on.
  Capture(const CaptureSpace& space, const std::function<void()>& work);

  /// Runs everything on the current stream.
  void launch() { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace tensorpack::cuda
