// SPDX-License-Identifier: Apache-2.0
// What a training takes of the machine, as scalars.
#pragma once

#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

/// Reports the most memory that was in use so far, after every epoch: of this process
/// (`PeakMemory(MB)/cpu`), and on CUDA of its tensors, weights and all, since the training began
/// (`PeakMemory(MB)/gpu:0`).
class PeakMemoryTracker final : public Callback {
 public:
  PeakMemoryTracker() { set_chief_only(false); }

  ReportedScalars reports() const override;
  void before_train() override;
  void trigger() override;
};

/// Reports free memory and load of the host after every epoch: `HostFreeMemory (GB)`, and
/// `HostCPU (cores)`, how many cores this process kept busy since the last report.
class HostResourceTracker final : public Callback {
 public:
  HostResourceTracker() { set_chief_only(false); }

  ReportedScalars reports() const override;
  void before_train() override;
  void trigger() override;

 private:
  struct Usage {
    double cpu_seconds = 0;
    double wall_seconds = 0;
  };
  static Usage usage();

  Usage last_;
};

/// Reports how busy devices were within each epoch, in percent: `GPUUtil/0`. A thread of its own
/// asks the driver every second. Without NVIDIA's driver it does nothing, after a warning.
class GPUUtilizationTracker final : public Callback {
 public:
  /// By default all devices that CUDA sees.
  explicit GPUUtilizationTracker(std::vector<int> devices = {});
  ReportedScalars reports() const override;
  ~GPUUtilizationTracker() override;
  GPUUtilizationTracker(GPUUtilizationTracker&&) noexcept;
  GPUUtilizationTracker& operator=(GPUUtilizationTracker&&) noexcept;

  void before_train() override;
  void before_epoch() override;
  void after_epoch() override;
  void trigger_epoch() override;
  void after_train() override;

 private:
  struct Samples;
  std::vector<int> devices_;
  detail::Pimpl<Samples> samples_;  // while training, with a driver
};

}  // namespace tensorpack
