// SPDX-License-Identifier: Apache-2.0
// Work on a CUDA device that is issued once and launched as a whole from then on.
#pragma once

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <memory>

namespace tensorpack::cuda {

class Capture;

/// Where captures happen: a stream that does nothing else, and memory they share. Captured work
/// that shares memory must be launched on one stream, as an executor does.
struct CaptureSpace {
  explicit CaptureSpace(c10::DeviceIndex device);
  ~CaptureSpace();
  CaptureSpace(const CaptureSpace&) = delete;
  CaptureSpace& operator=(const CaptureSpace&) = delete;

  c10::DeviceIndex device;
  c10::cuda::CUDAStream stream;
  at::cuda::MempoolId_t pool;

 private:
  // Memory that no capture uses any more cannot be used by a new one: this one stays.
  std::unique_ptr<Capture> keeper_;
};

/// What `work` issued to the device while it was captured.
class Capture {
 public:
  /// Calls `work`, which issues its kernels without running them; it may draw from `generator`, if
  /// that is defined, besides the default one. Throws what `work` or the capture
  /// threw, after the process has been brought back to a state in which it can go on.
  Capture(const CaptureSpace& space, const at::Generator& generator,
          const std::function<void()>& work);

  /// Runs everything on the current stream.
  void launch() { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

}  // namespace tensorpack::cuda
