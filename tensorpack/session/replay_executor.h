// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "tensorpack/graph/trace.h"
#include "tensorpack/session/executor.h"
#include "tensorpack/session/program_runner.h"

namespace tensorpack {

/// Records an op at its first run, and for every new combination of input shapes, and runs the
/// program from then on. Recording and verifying leave variables and generators as they were.
class ReplayExecutor final : public Executor {
 public:
  ReplayExecutor(Graph& graph, ExecutorOptions options,
                 RunnerFactory make_runner = make_replay_runner)
      : graph_(graph), options_(options), make_runner_(std::move(make_runner)) {}

  std::vector<at::Tensor> run(const Op& op, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches) override;

  /// How often an op was recorded so far.
  size_t recordings() const { return recordings_; }

 private:
  // What a caller asks for, in its order, possibly twice.
  struct Request {
    std::vector<std::string> fetches;
    ProgramRunner* runner;
    struct Source {
      size_t position;  // in what the runner returns
      bool is_repeated;
    };
    std::vector<Source> sources;  // of each fetch
  };
  // One recording, and a runner for every set of fetches that was asked for.
  struct Variant {
    Trace trace;
    std::map<std::vector<std::string>, std::unique_ptr<ProgramRunner>> runners;
    std::deque<Request> requests;
  };

  Variant& variant_for(const Op& op, const std::vector<at::Tensor>& inputs);
  Variant record_variant(const Op& op, const std::vector<at::Tensor>& inputs);
  Request& request_for(const Op& op, Variant& variant, const std::vector<std::string>& fetches);
  ProgramRunner& runner_for(const Op& op, Variant& variant,
                            const std::vector<std::string>& fetches);

  Graph& graph_;
  ExecutorOptions options_;
  RunnerFactory make_runner_;
  std::unordered_map<const Op::State*, std::deque<Variant>> variants_;
  size_t recordings_ = 0;
};

}  // namespace tensorpack
