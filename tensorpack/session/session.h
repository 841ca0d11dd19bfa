// SPDX-License-Identifier: Apache-2.0
// Evaluates ops of a graph.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/executor.h"
#include "tensorpack/session/fetched_values.h"
#include "tensorpack/tower/precision.h"
#include "tensorpack/tower/tower_handle.h"

namespace tensorpack {

/// Tensors by input name, in place of what the op's own source would give.
using Feeds = std::map<std::string, at::Tensor>;
using Fetches = std::vector<std::string>;

struct SessionOptions {
  ExecutorKind executor = ExecutorKind::kDefault;
  /// What tower functions compute in. On CUDA this sets libtorch's switches for tf32, which are of
  /// the process.
  Precision precision = Precision::kFloat32;
  /// On CUDA: kernels that give the same bits in every run, at some cost; a setting of the process.
  /// Otherwise kernels are chosen by speed.
  bool deterministic = false;
  /// Compare every new program with an eager run before it is used (see Note [Verification]).
  bool verify = true;
};

/// Runs ops. Evaluates only what is asked; does not count steps and calls no hooks.
class Session {
 public:
  explicit Session(Graph& graph, SessionOptions options = {});
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Graph& graph() { return graph_; }
  const SessionOptions& options() const { return options_; }

  /// Runs `op` once and returns the values of that very run, in the order of `fetches`: tensors the
  /// op named, its inputs, or variables (as they are after the run). Inputs that are not fed come
  /// from the op's source; throws EndOfData when that has ended.
  FetchedValues run(const Op& op, const Fetches& fetches = {}, const Feeds& feeds = {});

  /// The value of one tensor of a tower.
  at::Tensor run(const TensorRef& tensor, const Feeds& feeds = {});

  /// The operators that a run of a program op executes, recorded on zeros of the trial shapes; see
  /// graph/dump.h for ways to look at them. Changes nothing.
  Trace trace(const Op& op);

  /// Throws an Error with the nearest names, said to come from `where`, unless `op` can give
  /// `fetch`.
  void check_fetch(const Op& op, const std::string& fetch, const std::string& where) const;

 private:
  std::vector<at::Tensor> execute(const Op& op, const std::vector<at::Tensor>& inputs,
                                  const Fetches& fetches);
  void check_feeds(const Op& op, const Feeds& feeds) const;
  std::vector<at::Tensor> bind_inputs(const Op& op, const Feeds& feeds) const;
  void run_member(const Op& op, const Fetches& fetches, const Feeds& feeds,
                  std::vector<at::Tensor>& values);
  void run_program(const Op& op, const Fetches& fetches, const Feeds& feeds,
                   std::vector<at::Tensor>& values);

  Graph& graph_;
  SessionOptions options_;
  std::unique_ptr<Executor> executor_;
  HostCopies host_copies_;
};

}  // namespace tensorpack
