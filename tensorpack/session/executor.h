// SPDX-License-Identifier: Apache-2.0
// Ways to run an op. All give the same numbers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/detail/pass_switches.h"
#include "tensorpack/tower/precision.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

enum class ExecutorKind {
  kDefault,    ///< kReplay on the CPU, kCudaGraph on CUDA
  kReplay,     ///< records the op once per input shape and runs the program
  kCudaGraph,  ///< captures the whole program, once, and launches it as one piece of work
  kEager,      ///< calls the op's function every time: for debugging and dynamic control flow
};

/// A program op that is ready for one shape of inputs and one set of fetches. Always run by the
/// same thread, or by one at a time; different ones run at once.
class PreparedOp {
 public:
  virtual ~PreparedOp() = default;

  /// Evaluates the op on inputs like those it was prepared for, and returns what it was prepared to
  /// fetch, as tensors of the caller's own.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) = 0;
};

/// Makes ops of one graph ready. Preparing is for one thread at a time, and goes on while prepared
/// ops of other sessions run.
class Executor {
 public:
  virtual ~Executor() = default;

  /// What runs `op` on inputs like these, which fit its signature; null when it has to be prepared,
  /// or verified again, first. Valid until many other lists of fetches of the same op
  /// were prepared.
  virtual PreparedOp* find(const Op& op, const std::vector<at::Tensor>& inputs,
                           const std::vector<std::string>& fetches) = 0;

  /// The same, and makes it where it is not there.
  virtual PreparedOp& prepare(const Op& op, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches) = 0;

  /// What calls the function of `op` once, without preparing anything.
  virtual PreparedOp& call_function(const Op& op, const std::vector<at::Tensor>& inputs,
                                    const std::vector<std::string>& fetches) = 0;

  /// What was recorded of `op` most recently used, before it was lowered; null when nothing was.
  virtual const Trace* recorded(const Op& /*op*/) const { return nullptr; }

  /// Prepares the op and runs it, on this thread.
  std::vector<at::Tensor> run(const Op& op, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches) {
    return prepare(op, inputs, fetches).run(inputs);
  }
};

struct ExecutorOptions {
  /// What tower functions compute in.
  Precision precision = Precision::kFloat32;
  /// Compare every new program with an eager run on other data.
  bool verify = true;
  /// Compare its recording with the function again (see Note [Verifying again]).
  bool verify_again = true;
  PassSwitches switches = {};  ///< not for ExecutorKind::kEager
};

std::unique_ptr<Executor> make_executor(ExecutorKind kind, Graph& graph,
                                        const ExecutorOptions& options);

}  // namespace tensorpack
