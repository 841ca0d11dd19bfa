// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/optim/optimizer.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct LossScaleOptions {
  double first = 65536;            ///< first value of the variable `loss_scale`
  double growth = 2;               ///< factor after `growth_interval` good steps
  double backoff = 0.5;            ///< factor after a step whose gradients overflowed
  int64_t growth_interval = 2000;  ///< counted in the variable `loss_scale/good_steps`
  /// Put before the names of the optimizer's own variables, to tell several in a graph apart.
  std::string scope = {};
};

/// Multiplies the cost by a factor, so that small gradients survive float16, and divides the
/// gradients by it. A step whose gradients are not finite changes nothing but the factor. Works
/// through minimize() and as the outermost optimizer alone.
class LossScaleOptimizer final : public Optimizer {
 public:
  explicit LossScaleOptimizer(Owned<Optimizer> optimizer, LossScaleOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;
  at::Tensor scale_cost(const at::Tensor& cost) override;

 private:
  at::Tensor scale() const;

  Owned<Optimizer> optimizer_;
  LossScaleOptions options_;
};

}  // namespace tensorpack
