// SPDX-License-Identifier: Apache-2.0
// Work on a CUDA device that is issued once and launched as a whole from then on.
#pragma once

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <mutex>
#include <optional>

namespace tensorpack::cuda {

/// Where captures happen: a stream that does nothing else, and memory they share. Captured work
/// that shares memory must be launched on one stream, as an executor does.
class CaptureSpace {
 public:
  explicit CaptureSpace(c10::DeviceIndex device, bool replaces_memsets = true);

  const c10::DeviceIndex device;
  const bool replaces_memsets;  // see Note [Memsets in graphs]
  const c10::cuda::CUDAStream stream;

 private:
  friend class Capture;
  using Pool = std::shared_ptr<const at::cuda::MempoolId_t>;

  // The memory of the captures that there are. When none is left it goes back to the device, which
  // libtorch cannot undo: the next one gets another.
  Pool pool() const;

  mutable std::weak_ptr<const at::cuda::MempoolId_t> pool_;
};

/// What this thread issues to the device between its construction and end(): not run, but kept. One
/// at a time in the process. Destroyed before end(), as by an exception, it brings the process back
/// to a state in which it can go on.
class Capture {
 public:
  /// The work may draw from `generator`, if that is defined, besides the default one.
  Capture(const CaptureSpace& space, const at::Generator& generator);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  void end();

  /// Runs everything on the current stream.
  void launch() { graph_.replay(); }

 private:
  const CaptureSpace& space_;
  at::Generator generator_;
  std::unique_lock<std::mutex> turn_;
  std::optional<c10::cuda::CUDAStreamGuard> on_stream_;  // until it has ended
  at::cuda::CUDAGraph graph_;  // keeps what was captured, where libtorch can
  CaptureSpace::Pool pool_;
  at::Tensor scratch_;  // until it has ended: something to write to, should memory run out
};

}  // namespace tensorpack::cuda
