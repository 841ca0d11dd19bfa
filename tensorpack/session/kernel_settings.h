// SPDX-License-Identifier: Apache-2.0
// Switches of libtorch that are of the process, and choose among kernels.
#pragma once

#include <c10/core/Device.h>

#include <optional>

namespace tensorpack {

/// What a session on CUDA asks of all kernels of the process.
struct KernelSettings {
  bool tf32 = false;           ///< products of float32 matrices round their operands to 10 bits
  bool deterministic = false;  ///< kernels that give the same bits in every run
  int cudnn_candidates = 10;   ///< see SessionOptions
  bool operator==(const KernelSettings&) const = default;
};

namespace detail {

/// libtorch's switches as they are.
struct KernelSwitches {
  bool tf32_cublas, tf32_cudnn, benchmark, cudnn, algorithms, warn_only;
  int candidates;
  static KernelSwitches now();
  void set() const;
};

}  // namespace detail

/// While it lives, libtorch's switches are set as asked. Several may hold them at a time if they
/// ask for the same: otherwise an Error. What was set before comes back with the last.
class [[nodiscard]] HoldKernelSettings {
 public:
  explicit HoldKernelSettings(KernelSettings settings);
  ~HoldKernelSettings();
  HoldKernelSettings(const HoldKernelSettings&) = delete;
  HoldKernelSettings& operator=(const HoldKernelSettings&) = delete;
};

/// While it lives, kernels on CUDA repeat themselves. On CUDA the fastest kernels add up in any
/// order, and a gradient that should be zero (of a bias before batch norm) is nothing but the
/// rounding.
class [[nodiscard]] RepeatableKernels {
 public:
  explicit RepeatableKernels(c10::Device device);
  ~RepeatableKernels();
  RepeatableKernels(const RepeatableKernels&) = delete;
  RepeatableKernels& operator=(const RepeatableKernels&) = delete;

 private:
  std::optional<detail::KernelSwitches> before_;  // if there was anything to set
};

}  // namespace tensorpack
