// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>

#include "tensorpack/train/trainer.h"

namespace tensorpack {

/// A trainer whose step is a function of the test, and that can be told it is not the chief.
class StepTrainer final : public Trainer {
 public:
  using Step = std::function<void(StepTrainer&)>;

  explicit StepTrainer(Step step, bool is_chief = true) : step_(std::move(step)) {
    is_chief_ = is_chief;
  }
  void run_step() override { step_(*this); }

 private:
  Step step_;
};

/// Runs an op that does nothing, `runs` times a step.
inline StepTrainer hooked_runs(int runs) {
  return StepTrainer([runs](StepTrainer& trainer) {
    for (int i = 0; i < runs; ++i) trainer.hooked_sess().run(Op::nothing());
  });
}

}  // namespace tensorpack
