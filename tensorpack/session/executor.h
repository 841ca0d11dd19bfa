// SPDX-License-Identifier: Apache-2.0
// Ways to run an op. All give the same numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"

namespace tensorpack {

enum class ExecutorKind {
  kDefault,    ///< kReplay on the CPU, kCudaGraph on CUDA
  kReplay,     ///< records the op once per input shape and runs the program
  kCudaGraph,  ///< captures the whole program, once, and launches it as one piece of work
  kEager,      ///< calls the op's function every time: for debugging and dynamic control flow
};

/// Runs ops of one graph, on one thread at a time.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Evaluates a program op on inputs that fit its signature, and returns the outputs named by
  /// `fetches` as tensors of the caller's own.
  virtual std::vector<at::Tensor> run(const Op& op, const std::vector<at::Tensor>& inputs,
                                      const std::vector<std::string>& fetches) = 0;
};

struct ExecutorOptions {
  /// Compare the first replay of every program with an eager run on other data.
  bool verify = true;
};

std::unique_ptr<Executor> make_executor(ExecutorKind kind, Graph& graph,
                                        const ExecutorOptions& options);

/// Defined in cuda/ when the library is built with CUDA; throws an Error otherwise.
std::unique_ptr<Executor> make_cuda_graph_executor(Graph& graph, const ExecutorOptions& options);

}  // namespace tensorpack
