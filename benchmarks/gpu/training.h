// SPDX-License-Identifier: Apache-2.0
// Our side of a GPU benchmark, written as a user of the library would.
#pragma once

#include <optional>
#include <vector>

#include "benchmarks/gpu/task.h"
#include "tensorpack/tensorpack.h"

namespace tensorpack::bench {

class GpuTraining {
 public:
  GpuTraining(const GpuTask& task, torch::Device device);

  /// Has one step begin; on a GPU it may still be running when this returns.
  void step() { session_->run(op_); }

  int64_t parameters();

 private:
  NamedTensors classify(const std::vector<Tensor>& in);
  NamedTensors play(const std::vector<Tensor>& in);
  Tensor logits(const Tensor& bytes_or_numbers) const;
  std::vector<TensorSpec> inputs() const;
  InputFeeder feeder();

  GpuTask task_;
  torch::Device device_;
  Owned<Optimizer> optimizer_, second_optimizer_;
  InputSourcePtr source_;
  Graph graph_;
  Op op_;
  std::optional<Session> session_;
};

/// Waits for all work on the device.
void synchronize(torch::Device device);

}  // namespace tensorpack::bench
