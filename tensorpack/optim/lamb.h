// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/optim/optimizer.h"

namespace tensorpack {

struct LAMBOptions {
  /// First value of the variable `learning_rate`, which schedules change while training.
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
  /// Put before the names of the optimizer's own variables (`<scope>/learning_rate`), to tell
  /// several optimizers of a model apart.
  std::string scope = {};
};

/// LAMB (You et al., 2020), for large batches: each variable's Adam step, weight decay included, is
/// scaled to the norm of the variable. Variables of norm 0 take it as it is. The slots are
/// `<variable>/LAMB_m` and `<variable>/LAMB_v`, the step count is `LAMB/step`.
class LAMB final : public Optimizer {
 public:
  explicit LAMB(LAMBOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 private:
  LAMBOptions options_;
};

}  // namespace tensorpack
