// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <list>

#include "tensorpack/session/executor.h"

namespace tensorpack {

/// Whether this thread calls the function of an op for an EagerExecutor, and so holds the lock of a
/// graph.
bool is_in_eager_call();

/// Calls the op's function at every run; functions of ops that run at once are called at once.
class EagerExecutor final : public Executor {
 public:
  explicit EagerExecutor(ExecutorOptions options);
  ~EagerExecutor() override;

  PreparedOp* find(const Op& op, const std::vector<at::Tensor>& inputs,
                   const std::vector<std::string>& fetches) override {
    return &prepare(op, inputs, fetches);  // nothing is recorded
  }
  PreparedOp& prepare(const Op& op, const std::vector<at::Tensor>& inputs,
                      const std::vector<std::string>& fetches) override;
  PreparedOp& call_function(const Op& op, const std::vector<at::Tensor>& inputs,
                            const std::vector<std::string>& fetches) override {
    return prepare(op, inputs, fetches);
  }

 private:
  class Call;

  ExecutorOptions options_;
  std::list<Call> calls_;  // the one that was used last is the last
};

}  // namespace tensorpack
