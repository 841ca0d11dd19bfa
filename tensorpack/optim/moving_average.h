// SPDX-License-Identifier: Apache-2.0
// Averages of the weights over the training, which often predict better than the last ones.
//
//   .optimizer = MovingAverageOptimizer(Momentum(0.1), {.decay = 0.999})
//
// and, in the function that predicts:
//
//   auto averaged = use_moving_averages();
#pragma once

#include <string>

#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct MovingAverageOptions {
  double decay = 0.999;  ///< share of the old average that is kept
  /// Put before the name of its counter, `MovingAverage/step`, to tell several in a graph apart.
  std::string scope = {};
};

/// Keeps an exponential moving average of every variable it updates, in `<variable>/MovingAverage`,
/// which is saved with the model. The first steps, fewer than 1 / (1 - decay), count alike, so that
/// the first value does not matter.
class MovingAverageOptimizer final : public Optimizer {
 public:
  explicit MovingAverageOptimizer(Owned<Optimizer> optimizer, MovingAverageOptions options = {});
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 private:
  Owned<Optimizer> optimizer_;
  MovingAverageOptions options_;
};

/// While the result lives, layers on this thread get the averages of trainable variables that have
/// one, and no gradient goes through them.
[[nodiscard]] VariableGetterScope use_moving_averages();

}  // namespace tensorpack
