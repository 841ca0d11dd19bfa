// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// While it lives, operators of this thread launch nothing: their kernels are noted instead.
class KernelList final : public Launcher {
 public:
  /// For a device with so many multiprocessors.
  explicit KernelList(int multiprocessors);
  ~KernelList() override;
  KernelList(const KernelList&) = delete;
  KernelList& operator=(const KernelList&) = delete;

  int multiprocessors() const override { return multiprocessors_; }
  void prepare(const KernelSource&) const override {}  // what is prepared is launched, too
  void launch(const KernelSource& kernel, const LaunchShape&, void**) const override {
    kernels_.push_back(kernel);
  }

  const std::vector<KernelSource>& kernels() const { return kernels_; }

 private:
  int multiprocessors_;
  mutable std::vector<KernelSource> kernels_;
};

/// What runs the kernels of an operator on `tensor`; nullptr if libtorch's must do.
const Launcher* launcher_for(const at::Tensor& tensor);

}  // namespace tensorpack::cuda
