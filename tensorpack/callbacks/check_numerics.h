// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/graph/detail/saved_state.h"

namespace tensorpack {

struct CheckNumericsOptions {
  /// A scalar to look at besides the variables; the costs of the trainer when empty. A training
  /// that does not have it does without, with a warning.
  std::string tensor = {};
};

/// Ends the training at the first NaN or infinity, in the cost or in a trainable variable, and says
/// which operator of which layer it came from: that very step is run again from the same variables,
/// batch and random numbers, operator by operator.
///
///   [CheckNumerics] 'cost' is NaN at global_step 12: aten::log in layer 'loss' is the first to ...
///
/// For debugging: every step takes a copy of all variables and a look at them. Variables are left
/// as they were before the step. Of several towers, the first is looked into.
class CheckNumerics final : public Callback {
 public:
  explicit CheckNumerics(CheckNumericsOptions options = {});

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;

 private:
  std::optional<std::string> bad_variable() const;
  [[noreturn]] void fail(const std::string& what, const Op& op);

  CheckNumericsOptions options_;
  std::vector<std::string> watched_;
  // Of the run in progress:
  SavedState before_;  // variables and random numbers
  std::vector<at::Tensor> inputs_;
  std::vector<std::string> fetched_;  // those of the watched scalars that it has
};

}  // namespace tensorpack
