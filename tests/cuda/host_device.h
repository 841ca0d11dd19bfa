// SPDX-License-Identifier: Apache-2.0
// Generated kernels, compiled by the host's compiler and run on the CPU.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack::cuda {

/// Runs one block after the other, and a block's threads in turns from barrier to barrier.
class HostLauncher final : public Launcher {
 public:
  explicit HostLauncher(int multiprocessors = 2) : multiprocessors_(multiprocessors) {}

  int multiprocessors() const override { return multiprocessors_; }
  void prepare(const KernelSource& kernel) const override;
  void launch(const KernelSource& kernel, const LaunchShape& shape,
              void** arguments) const override;

 private:
  using Run = void (*)(const unsigned* grid, const unsigned* block, void** arguments);
  Run compiled(const KernelSource& kernel) const;

  int multiprocessors_;
};

}  // namespace tensorpack::cuda
