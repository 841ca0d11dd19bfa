// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/optim/optimizer.h"

namespace tensorpack {

struct AdamOptions {
  /// First value of the variable `learning_rate`, which schedules change while training.
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  /// Put before the names of the optimizer's own variables (`<scope>/learning_rate`), to tell
  /// several optimizers of a model apart.
  std::string scope = {};
};

/// Adam: the numbers of torch::optim::Adam. The slots are `<variable>/Adam_m` and
/// `<variable>/Adam_v`, the step count is `Adam/step`.
class Adam : public Optimizer {
 public:
  explicit Adam(AdamOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 protected:
  Adam(AdamOptions options, bool decoupled);

 private:
  AdamOptions options_;
  bool decoupled_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
  std::string scope = {};
};

/// Adam with weight decay that does not pass through the moments: the numbers of
/// torch::optim::AdamW. The variables are those of Adam.
class AdamW final : public Adam {
 public:
  explicit AdamW(AdamWOptions options = {});
};

}  // namespace tensorpack
