// SPDX-License-Identifier: Apache-2.0
// What happens to gradients before they are applied.
//
//   auto optimizer = apply_grad_processors(Momentum(0.1), {GlobalNormClip(5),
//                                                          ScaleGradient({{"fc.*", 0.1}})});
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/optim/optimizer.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// A regular expression for names of variables, which has to match the whole name ("fc/W", without
/// the tower's prefix), as in Tensorpack's gradient processors.
class WholeName {
 public:
  WholeName(const char* where, std::string regex);
  bool matches(const Variable& variable) const;
  /// Warns, once, when there is no match among the gradients, nor among what else the call trains.
  void warn_without_match(const char* where, const Gradients& gradients) const;

 private:
  struct Pattern;
  std::string regex_;
  std::shared_ptr<const Pattern> pattern_;
};

/// Changes gradients, or leaves some out. Called where Optimizer::apply_gradients() is.
class GradientProcessor {
 public:
  virtual ~GradientProcessor() = default;
  virtual Gradients process(Gradients gradients) = 0;
};

/// Scales all gradients by one factor, so that the norm of all together is at most `norm`.
class GlobalNormClip final : public GradientProcessor {
 public:
  explicit GlobalNormClip(double norm);
  Gradients process(Gradients gradients) override;

 private:
  double norm_;
};

/// Applies a function to the gradients of the variables whose whole name matches. Where the
/// function gives nothing, the variable is not updated. Warns when no variable matches.
class MapGradient final : public GradientProcessor {
 public:
  using Function = std::function<std::optional<at::Tensor>(const at::Tensor& gradient)>;
  using FunctionOfVariable =
      std::function<std::optional<at::Tensor>(const at::Tensor& gradient, const Variable&)>;

  explicit MapGradient(Function function, std::string regex = ".*");
  explicit MapGradient(FunctionOfVariable function, std::string regex = ".*");
  Gradients process(Gradients gradients) override;

 private:
  FunctionOfVariable function_;
  WholeName pattern_;
};

/// Multiplies gradients by the factor of the first rule whose expression matches the variable's
/// whole name; a factor of 0 takes the variable out of the update. Logs each once, and warns of a
/// rule that matches no variable.
class ScaleGradient final : public GradientProcessor {
 public:
  using Rule = std::pair<std::string, double>;  ///< regular expression, factor
  explicit ScaleGradient(const std::vector<Rule>& rules);
  Gradients process(Gradients gradients) override;

 private:
  std::vector<std::pair<WholeName, double>> rules_;
};

/// Throws an Error that names the variable when a gradient has a NaN or an infinity, in the run
/// that computed it and before the variable changes. On a GPU it waits for the gradients.
class CheckGradient final : public GradientProcessor {
 public:
  Gradients process(Gradients gradients) override;
};

/// print_stat() of the gradients of variables whose whole name matches, in every run. Warns when no
/// variable matches.
class PrintGradient final : public GradientProcessor {
 public:
  explicit PrintGradient(const std::string& regex = ".*");
  Gradients process(Gradients gradients) override;

 private:
  WholeName pattern_;
};

/// Reports each gradient: a moving average of its root mean square, `<variable>-grad/rms`, and its
/// `<variable>-grad-histogram`. For variables whose whole name matches; warns when none does.
class SummaryGradient final : public GradientProcessor {
 public:
  explicit SummaryGradient(const std::string& regex = ".*");
  Gradients process(Gradients gradients) override;

 private:
  WholeName pattern_;
};

/// An optimizer that sees gradients after the processors, which run in order.
class GradProcessingOptimizer final : public Optimizer {
 public:
  GradProcessingOptimizer(Owned<Optimizer> optimizer, OwnedList<GradientProcessor> processors);
  void update(const Gradients& gradients) override;
  HyperParams hyper_params() const override { return optimizer_->hyper_params(); }

 private:
  Owned<Optimizer> optimizer_;
  OwnedList<GradientProcessor> processors_;
};

GradProcessingOptimizer apply_grad_processors(Owned<Optimizer> optimizer,
                                              OwnedList<GradientProcessor> processors);

}  // namespace tensorpack
