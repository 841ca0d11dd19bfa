// SPDX-License-Identifier: Apache-2.0
// The processes that train together, and what they can do together: libtorch's c10d, of any
// version, behind an interface without its headers.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/distributed/launch_environment.h"

namespace tensorpack {

/// Something the processes do together, under way. Tensors given to it must not be touched before
/// wait() has returned.
class Collective {
 public:
  virtual ~Collective() = default;
  /// On CUDA with NCCL: what the current stream does from now on happens after it. Otherwise
  /// returns when it is done. Throws an Error that names who is missing and the step.
  virtual void wait() = 0;
};

struct ProcessGroupOptions {
  LaunchEnvironment environment = detect_launch();
  /// What tensors that are exchanged lie on: decides between Gloo and NCCL.
  c10::Device device = c10::kCPU;
  /// How long the others may take to come, and to take part in a collective.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
};

/// The processes started together, seen from one of them. Everybody must call the same collectives
/// in the same order, from one thread at a time.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  /// Waits for the others. For a process alone, a group of one, which needs no network.
  static std::shared_ptr<ProcessGroup> create(ProcessGroupOptions options = {});

  const LaunchEnvironment& environment() const { return environment_; }
  int rank() const { return environment_.rank; }
  int size() const { return environment_.size; }
  bool is_chief() const { return environment_.rank == 0; }

  /// Adds up `tensor` over all processes, in place.
  virtual std::unique_ptr<Collective> begin_sum(const at::Tensor& tensor) = 0;
  /// Gives every process the values of `root`, in place.
  virtual void broadcast(const at::Tensor& tensor, int root = 0) = 0;
  /// What each process brought, by rank.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;
  /// Waits until all have come here.
  virtual void barrier() = 0;

  /// Tells the others where this process is, for the message that they give when it is missing.
  /// Cheap: nothing is sent by the caller.
  virtual void set_step(int64_t step) = 0;
  /// This process takes no more part, and why: collectives of the others fail with this reason.
  /// Returns when they can know it.
  virtual void leave(const std::string& reason) = 0;

 protected:
  explicit ProcessGroup(LaunchEnvironment environment) : environment_(std::move(environment)) {}

 private:
  LaunchEnvironment environment_;
};

}  // namespace tensorpack
