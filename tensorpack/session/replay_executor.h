// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <unordered_map>

#include "tensorpack/graph/program.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/session/executor.h"

namespace tensorpack {

/// Records an op at its first run, and for every new combination of input shapes, and runs the
/// program from then on. Recording and verifying leave variables and generators as they were.
class ReplayExecutor final : public Executor {
 public:
  ReplayExecutor(Graph& graph, ExecutorOptions options) : graph_(graph), options_(options) {}

  std::vector<at::Tensor> run(const Op& op, const std::vector<at::Tensor>& inputs,
                              const std::vector<std::string>& fetches) override;

  /// How often an op was recorded so far.
  size_t recordings() const { return recordings_; }

 private:
  // What a caller asks for, in its order, possibly twice.
  struct Request {
    std::vector<std::string> fetches;
    Program* program;
    std::vector<size_t> positions;  // of each fetch in what the program returns
  };
  // One recording, and a program for every set of fetches that was asked for.
  struct Variant {
    Trace trace;
    std::map<std::vector<std::string>, Program> programs;
    std::deque<Request> requests;
  };

  Variant& variant_for(const Op& op, const std::vector<at::Tensor>& inputs);
  Variant record_variant(const Op& op, const std::vector<at::Tensor>& inputs);
  Request& request_for(Variant& variant, const std::vector<std::string>& fetches);
  Program& program_for(Variant& variant, const std::vector<std::string>& fetches);

  Graph& graph_;
  ExecutorOptions options_;
  std::unordered_map<const Op::State*, std::deque<Variant>> variants_;
  size_t recordings_ = 0;
};

}  // namespace tensorpack
