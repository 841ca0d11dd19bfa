// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/optim/optimizer.h"

namespace tensorpack {

struct RMSPropOptions {
  /// First value of the variable `learning_rate`, which schedules change while training.
  double lr = 1e-2;
  double alpha = 0.99;  ///< share of the old mean square that is kept
  double epsilon = 1e-8;
  double momentum = 0;
  bool centered = false;  ///< divide by the standard deviation instead of the root mean square
  double weight_decay = 0;
  /// Put before the names of the optimizer's own variables (`<scope>/learning_rate`), to tell
  /// several optimizers of a model apart.
  std::string scope = {};
};

/// RMSProp: the numbers of torch::optim::RMSprop. The slots are `<variable>/RMSProp`, and where
/// asked for `RMSProp_mean` and `RMSProp_momentum`.
class RMSProp final : public Optimizer {
 public:
  explicit RMSProp(RMSPropOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 private:
  RMSPropOptions options_;
};

}  // namespace tensorpack
