// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

/// Counts hooked runs in `global_step`. Every trainer has one, before the user's callbacks, which
/// therefore see the new number in after_run().
class MaintainStepCounter final : public Callback {
 public:
  MaintainStepCounter() { set_chief_only(false); }

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  void after_run(RunContext&, const FetchedValues&) override {
    const auto lock = graph().lock_variables();
    trainer().set_global_step(++*counter_);
  }

 private:
  int64_t* counter_ = nullptr;  // into the variable: a step must not pay for an operator
};

}  // namespace tensorpack
