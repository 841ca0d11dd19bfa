// SPDX-License-Identifier: Apache-2.0
// Averages of the weights over the training, which often predict better than the last ones.
//
//   .optimizer = MovingAverageOptimizer(Momentum(0.1), {.decay = 0.999})
//
// and, in the function that predicts:
//
//   auto averaged = use_moving_averages();
#pragma once

#include <set>
#include <string>

#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

class Graph;

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
/// one, and no gradient goes through them. In prediction it is an Error when no variable has one;
/// those that have none, as frozen ones, are used themselves and logged. Predictors and exports
/// restore the averages along with the weights.
[[nodiscard]] VariableGetterScope use_moving_averages();

namespace detail {
/// For graphs that only predict: from now on use_moving_averages() makes the averages it asks for,
/// whose values are restored.
void restore_moving_averages(Graph& graph);
/// After that, and the restore: has a variable without an average used itself; throws an Error if
/// that is all of them. `without_value` are the variables that the restore did not write; what is
/// given a value here leaves it.
void complete_moving_averages(Graph& graph, std::set<const Variable*>& without_value);
}  // namespace detail

}  // namespace tensorpack
