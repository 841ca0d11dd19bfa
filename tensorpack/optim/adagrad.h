// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/optim/optimizer.h"

namespace tensorpack {

struct AdagradOptions {
  /// First value of the variable `learning_rate`, which schedules change while training.
  double lr = 1e-2;
  double lr_decay = 0;  ///< the rate of step t is divided by 1 + (t - 1) * lr_decay
  double epsilon = 1e-10;
  double weight_decay = 0;
  double initial_accumulator = 0;
  /// Put before the names of the optimizer's own variables (`<scope>/learning_rate`), to tell
  /// several optimizers of a model apart.
  std::string scope = {};
};

/// Adagrad: the numbers of torch::optim::Adagrad. The slot is `<variable>/Adagrad`, the step count
/// `Adagrad/step`.
class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(AdagradOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 private:
  void update_at(const at::Tensor& lr, const Gradients& gradients) const;

  AdagradOptions options_;
};

}  // namespace tensorpack
