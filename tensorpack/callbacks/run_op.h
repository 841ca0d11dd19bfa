// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

struct RunOpOptions {
  bool run_before = true;      ///< once before training
  bool run_as_trigger = true;  ///< whenever triggered
  bool run_step = false;       ///< after every hooked run
};

/// Runs an op, without hooks. In every process, not the chief's alone.
class RunOp final : public Callback {
 public:
  explicit RunOp(Op op, RunOpOptions options = {});
  /// `define` is called in setup_graph() and returns the op.
  explicit RunOp(std::function<Op(Graph&)> define, RunOpOptions options = {});

  ReportedScalars reports() const override { return no_scalars(); }
  void setup_graph() override;
  void before_train() override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void trigger() override;

 private:
  std::function<Op(Graph&)> define_;
  RunOpOptions options_;
  Op op_;
};

}  // namespace tensorpack
