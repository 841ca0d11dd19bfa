// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/graph/op.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// Runs one program, for one shape of its inputs, many times.
class ProgramRunner {
 public:
  virtual ~ProgramRunner() = default;

  /// The fetched values, as tensors of the caller's own.
  virtual std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) = 0;
};

/// Makes the runner of a program of `op`: a trace that was optimized for `fetches`.
using RunnerFactory = std::function<std::unique_ptr<ProgramRunner>(
    const Op& op, const Trace& trace, const std::vector<std::string>& fetches)>;

/// Runs the program operator by operator.
std::unique_ptr<ProgramRunner> make_replay_runner(const Op& op, const Trace& trace,
                                                  const std::vector<std::string>& fetches);

}  // namespace tensorpack
