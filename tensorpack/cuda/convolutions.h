// SPDX-License-Identifier: Apache-2.0
// See Note [Choosing convolutions] in kernels/convolution.h.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tensorpack/cuda/convolution_plan.h"
#include "tensorpack/cuda/kernel_cache.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// Has the linker keep the operators on CUDA.
void link_convolutions();

/// Whether convolutions can be chosen here; the log says why they cannot.
bool can_choose_convolutions();

/// Chooses a kernel for each problem of one device, and runs it. Several threads may use it.
class Convolutions {
 public:
  /// Of the current device. Choices are kept in `cache`.
  explicit Convolutions(KernelCache cache);

  /// Computes the result of the problem, in its memory, on the current stream. False if that is
  /// left to libtorch.
  bool run(const ConvolutionProblem& problem, const at::Tensor& input, const at::Tensor& weight,
           const at::Tensor& output);

  /// For how many problems kernels were tried: neither chosen before nor found on disk.
  int searches() const { return searches_; }

 private:
  struct Tried;
  struct Choice {
    std::unique_ptr<ConvolutionPlan> plan;
    bool is_among_all;  // no kernel was left out because its workspace had no room
  };

  const ConvolutionPlan* plan_for(const ConvolutionProblem& problem,
                                  const ConvolutionMemory& memory);
  std::unique_ptr<ConvolutionPlan> kept_plan(const std::string& key) const;
  Choice fastest_plan(const ConvolutionProblem& problem, const ConvolutionMemory& memory, int most);

  std::mutex mutex_;
  KernelCache cache_;
  std::string device_;  // its name
  void* handle_ = nullptr;
  // By what they are for; null for what is left to libtorch.
  std::map<std::string, std::unique_ptr<ConvolutionPlan>> plans_;
  std::atomic<int> searches_ = 0;
};

}  // namespace tensorpack::cuda
