// SPDX-License-Identifier: Apache-2.0
// The processes that train together, and what they can do together: libtorch's c10d, of any
// version, behind an interface without its headers.
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

/// Something the processes do together, under way. Tensors given to it must not be touched before
/// wait() has returned.
class Collective {
 public:
  virtual ~Collective() = default;
  /// On CUDA with NCCL: what the current stream does from now on happens after it. Otherwise
  /// returns when it is done. Throws an Error that names who is missing and the step; Interrupted
  /// when a signal came (see SignalWatch) and the others have not come for 25 s after it.
  virtual void wait() = 0;
};

/// What carries tensors between processes.
enum class CollectiveBackend {
  kAuto,  ///< NCCL for CUDA where it can be used, else Gloo; nothing for a process alone.
  kGloo,  ///< The network and the host's memory, for tensors of any device.
  kNccl,  ///< GPUs of their own for every process; Gloo for tensors on the CPU.
};

/// $TENSORPACK_TIMEOUT in seconds; five minutes without it.
std::chrono::milliseconds default_collective_timeout();

struct ProcessGroupOptions {
  LaunchEnvironment environment = detect_launch();
  /// What tensors that are exchanged lie on: decides between Gloo and NCCL.
  c10::Device device = c10::kCPU;
  /// How long the others may take to come, and to take part in a collective.
  std::chrono::milliseconds timeout = default_collective_timeout();
  CollectiveBackend backend = CollectiveBackend::kAuto;
};

/// The processes started together, seen from one of them. Everybody must call the same collectives
/// with tensors of the same size in the same order, from one thread at a time; another thread may
/// meanwhile wait for a Collective. After the first Error the group is of no more use, and says so
/// at once.
///
/// A program may create several groups, also while others are in use: the first that one rank
/// creates is the first of every other rank, and so on. Ranks that train twice at once create both
/// groups before they start the threads.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;

  /// Waits for the others. For a process alone, a group of one, which needs no network.
  static std::shared_ptr<ProcessGroup> create(ProcessGroupOptions options = {});

  /// What it was created with; another group of the same processes takes the same.
  const ProcessGroupOptions& options() const { return options_; }
  const LaunchEnvironment& environment() const { return options_.environment; }
  int rank() const { return environment().rank; }
  int size() const { return environment().size; }
  bool is_chief() const { return rank() == 0; }

  /// Adds up `tensor`, dense and of any dtype and layout, over all processes, in place. Booleans
  /// are true where one of them is.
  virtual std::unique_ptr<Collective> begin_sum(const at::Tensor& tensor) = 0;
  /// Gives every process the values of `root`, in place.
  virtual void broadcast(const at::Tensor& tensor, int root = 0) = 0;
  /// What each process brought, by rank.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;
  /// Waits until all have come here.
  virtual void barrier() = 0;

  /// Throws the Error of the next collective if it is known already that there cannot be one.
  /// Cheap: for whoever waits for a device, where NCCL's work ends without a word when a rank is
  /// missing.
  virtual void check() = 0;
  /// The same for whoever has waited that long. Once it is as long as a collective may take, throws
  /// an Error that names who is behind. See WaitCheck, by which a group with NCCL has it called.
  virtual void check_after(std::chrono::milliseconds waited) = 0;

  /// This process received a signal: all act on it after the same step. kSignalToSave is a request
  /// for a checkpoint; by others all end.
  virtual void share_signal(int signal) = 0;
  /// Between steps, with the number of those that were made: the signal that all act on here, or 0
  /// to go on. Once a signal was shared, waits until all have agreed on a step. Throws Interrupted
  /// if they cannot.
  virtual int agreed_signal(int64_t step) = 0;
  /// Whether agreed_signal() has returned a signal to end by: all processes are at the same step.
  virtual bool ends_here() const = 0;

  /// Tells the others where this process is, for the message that they give when it is missing.
  /// Cheap: nothing is sent by the caller.
  virtual void set_step(int64_t step) = 0;
  /// This process takes no more part, and why: collectives of the others fail with this reason.
  /// Returns when they can know it.
  virtual void leave(const std::string& reason) = 0;
  /// As leave(), but the others are to end normally: their collectives throw StopTraining.
  virtual void stop(const std::string& reason) = 0;
  /// Whether this process has left, as it does at the end of a training.
  virtual bool has_left() const { return false; }

  /// Whether sums of tensors on CUDA are issued to streams alone, so that they can be captured.
  virtual bool is_capturable() const { return false; }

 protected:
  explicit ProcessGroup(ProcessGroupOptions options) : options_(std::move(options)) {}

 private:
  ProcessGroupOptions options_;
};

}  // namespace tensorpack
