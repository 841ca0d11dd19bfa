// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "tensorpack/cuda/jit.h"

namespace tensorpack::cuda {

/// Runs kernels: on a device's current stream, or in tests on the host.
class Launcher {
 public:
  virtual ~Launcher() = default;

  virtual int multiprocessors() const = 0;
  /// Compiles and loads, so that the launch cannot fail for want of that. Throws Error.
  virtual void prepare(const KernelSource& kernel) const = 0;
  virtual void launch(const KernelSource& kernel, const LaunchShape& shape,
                      void** arguments) const = 0;

  /// Launches with these values as the kernel's parameters; their types must be the kernel's.
  template <typename... Values>
  void operator()(const KernelSource& kernel, const LaunchShape& shape, Values... values) const {
    void* arguments[] = {static_cast<void*>(&values)...};
    launch(kernel, shape, arguments);
  }
};

}  // namespace tensorpack::cuda
