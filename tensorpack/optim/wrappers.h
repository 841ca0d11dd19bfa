// SPDX-License-Identifier: Apache-2.0
// Optimizers around an optimizer.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tensorpack/optim/optimizer.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct AccumGradOptions {
  /// Divides the sum by the number of steps: k batches of B then equal one of k * B for a cost that
  /// is a mean. Without, the sum is applied, as Tensorpack does; divide the learning rate by k.
  bool average = false;
  /// Put before the name of its counter, `AccumGrad/step`, to tell several in a graph apart.
  std::string scope = {};
};

/// Sums the gradients of `niter` steps and applies them at every niter-th; between, nothing the
/// optimizer keeps changes. The slot is `<variable>/AccumGrad`. The update is computed every time
/// and kept when it is due, so that one recorded program serves every step. With several towers or
/// processes, minimize() has each sum its own gradients: they exchange the sums, when these are
/// due.
class AccumGradOptimizer final : public Optimizer {
 public:
  AccumGradOptimizer(Owned<Optimizer> optimizer, int64_t niter, AccumGradOptions options = {});
  bool averages_gradients() const override { return true; }
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override;

 private:
  void accumulate(const Gradients& gradients, const at::Tensor& step, bool exchanges);

  Owned<Optimizer> optimizer_;
  int64_t niter_;
  AccumGradOptions options_;
};

/// Whether the variable is a slot of AccumGradOptimizer: a sum that towers may have each for
/// itself.
bool is_accumulated_gradient(const Variable& variable);

/// Calls a function with every updated variable after the update. The function may write it. Around
/// an AccumGradOptimizer, what it writes stays only in the steps that update.
class PostProcessOptimizer final : public Optimizer {
 public:
  using Function = std::function<void(Variable& variable)>;
  PostProcessOptimizer(Owned<Optimizer> optimizer, Function function);
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override { return optimizer_->hyper_params(); }

 private:
  Owned<Optimizer> optimizer_;
  Function function_;
};

/// Assigns `function(variable)` to every updated variable after the update; nothing where the
/// function gives none. For clipping and quantising.
class VariableAssignmentOptimizer final : public Optimizer {
 public:
  using Function = std::function<std::optional<at::Tensor>(const Variable& variable)>;
  VariableAssignmentOptimizer(Owned<Optimizer> optimizer, Function function);
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override { return optimizer_.hyper_params(); }

 private:
  PostProcessOptimizer optimizer_;
};

}  // namespace tensorpack
