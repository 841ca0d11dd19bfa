// SPDX-License-Identifier: Apache-2.0
// Collective communication between ranks: libtorch's c10d, of any version, behind an interface
// without its headers.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/utils/launch_environment.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The backend of collectives.
enum class CollectiveBackend {
  kAuto,  ///< NCCL for CUDA where it can be used, else Gloo; none for a world size of 1
  kGloo,  ///< over the network and the host's memory, for tensors of any device
  kNccl,  ///< between GPUs, with a GPU of its own for every rank; Gloo for tensors on the CPU
};

/// $TENSORPACK_TIMEOUT in seconds; five minutes without it.
std::chrono::milliseconds default_collective_timeout();

struct ProcessGroupOptions {
  LaunchEnvironment environment = detect_launch();
  /// The device of the tensors: decides between Gloo and NCCL.
  c10::Device device = c10::kCPU;
  /// How long the other ranks may take to join the group, and to join a collective.
  std::chrono::milliseconds timeout = default_collective_timeout();
  CollectiveBackend backend = CollectiveBackend::kAuto;
};

/// The ranks of one job. Every rank must call the same collectives in the same order with tensors
/// of the same size, from one thread at a time; another thread may meanwhile wait for a Work. After
/// the first Error every further collective of the group throws at once.
///
/// A program may create several groups, also while others are in use: the first that one rank
/// creates is the first of every other rank, and so on. Ranks that train twice at once create both
/// groups before they start the threads.
class ProcessGroup {
 public:
  /// An asynchronous collective. Its tensors must not be read or written before wait() has
  /// returned.
  class Work {
   public:
    virtual ~Work() = default;
    /// With NCCL: makes the current stream wait for the collective. Otherwise blocks until it is
    /// complete. Throws an Error that names the missing ranks and the step; Interrupted when a
    /// signal came (see SignalWatch) and the other ranks have not joined for 25 s after it.
    virtual void wait() = 0;
  };

  virtual ~ProcessGroup() = default;

  /// Waits until all ranks have joined. With a world size of 1 nothing is connected.
  static std::shared_ptr<ProcessGroup> create(ProcessGroupOptions options = {});

  /// What it was created with; another group of the same ranks takes the same.
  const ProcessGroupOptions& options() const { return options_; }
  const LaunchEnvironment& environment() const { return options_.environment; }
  int rank() const { return environment().rank; }
  int size() const { return environment().size; }
  bool is_chief() const { return rank() == 0; }

  /// Starts an asynchronous all-reduce: the sum of `tensor` over all ranks, in place, of any dense
  /// layout and dtype. Booleans are combined by or.
  [[nodiscard]] virtual std::unique_ptr<Work> all_reduce(const at::Tensor& tensor) = 0;
  /// The byte strings of all ranks, by rank.
  virtual std::vector<std::string> all_gather(const std::string& bytes) = 0;
  /// Copies `tensor` of rank `root` to all ranks, in place.
  virtual void broadcast(const at::Tensor& tensor, int root = 0) = 0;
  /// Blocks until every rank has called it.
  virtual void barrier() = 0;

  /// Throws the Error that the next collective would throw, if it is known already. Cheap: for code
  /// that waits for a device, where NCCL's work ends silently when a rank is missing.
  virtual void check() = 0;
  /// check() for code that has waited that long. From the timeout of collectives on, throws an
  /// Error that names the ranks that are behind. A group with NCCL registers it as a WaitCheck.
  virtual void check_after(std::chrono::milliseconds waited) = 0;

  /// Announces a signal of this process: all ranks act on it after the same step. kSignalToSave
  /// requests a checkpoint; other signals end the training.
  virtual void share_signal(int signal) = 0;
  /// A signal to end by that some rank has announced, or 0. Others know it a second or two later.
  virtual int shared_signal() const { return 0; }
  /// Between steps, with the number of steps done: the signal that all ranks act on here, or 0 to
  /// go on. Once a signal was shared, waits until all ranks have agreed on a step. Throws
  /// Interrupted if they cannot.
  virtual int agreed_signal(int64_t step) = 0;
  /// Whether agreed_signal() has returned a signal to end by: all ranks are at the same step.
  virtual bool ends_here() const = 0;

  /// Publishes the step of this rank, which errors of other ranks name when it is missing. Cheap:
  /// the caller sends nothing.
  virtual void set_step(int64_t step) = 0;
  /// Leaves the group: collectives of the other ranks fail with `reason`. Returns once they can
  /// read it.
  virtual void leave(const std::string& reason) = 0;
  /// As leave(), but the other ranks end normally: their collectives throw StopTraining.
  virtual void stop(const std::string& reason) = 0;
  /// Whether this rank has left, as it does at the end of a training.
  virtual bool has_left() const { return false; }

  /// Whether an all-reduce of tensors on CUDA only enqueues work on streams, so that a CUDA graph
  /// can capture it.
  virtual bool is_capturable() const { return false; }

 protected:
  explicit ProcessGroup(ProcessGroupOptions options) : options_(std::move(options)) {}

 private:
  ProcessGroupOptions options_;
};

}  // namespace tensorpack
