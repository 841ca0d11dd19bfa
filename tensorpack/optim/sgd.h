// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/optim/optimizer.h"

namespace tensorpack {

struct SGDOptions {
  /// First value of the variable `learning_rate`, which schedules change while training.
  double lr = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  /// Put before the names of the optimizer's own variables (`<scope>/learning_rate`), to tell
  /// several optimizers of a model apart.
  std::string scope = {};
};

/// Stochastic gradient descent, with momentum if asked for: the numbers of torch::optim::SGD. The
/// slot is `<variable>/Momentum`.
class SGD final : public Optimizer {
 public:
  explicit SGD(SGDOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 private:
  SGDOptions options_;
};

/// SGD with momentum 0.9.
SGD Momentum(double lr = 0.01, double momentum = 0.9);

}  // namespace tensorpack
