// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/loss_scale.h"

#include <ATen/ATen.h>

#include <utility>

#include "tensorpack/optim/apply_if.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Who has scaled the cost of the gradients to come. Towers may be called on several threads at
// once.
struct ScaledCost {
  const LossScaleOptimizer* by = nullptr;
};

const LossScaleOptimizer*& who_has_scaled() { return ThreadFrame::current().get<ScaledCost>().by; }

}  // namespace

LossScaleOptimizer::LossScaleOptimizer(Owned<Optimizer> optimizer, LossScaleOptions options)
    : optimizer_(std::move(optimizer)), options_(std::move(options)) {
  TP_CHECK(static_cast<bool>(optimizer_), "LossScaleOptimizer", "there is no optimizer. Pass one.");
  TP_CHECK(options_.first > 0 && options_.growth >= 1 && options_.backoff > 0 &&
               options_.backoff < 1 && options_.growth_interval > 0,
           "LossScaleOptimizer",
           "first {} must be above 0, growth {} at least 1, backoff {} between 0 and 1, and "
           "growth_interval {} at least 1.",
           options_.first, options_.growth, options_.backoff, options_.growth_interval);
}

at::Tensor LossScaleOptimizer::scale() const {
  return own_scalar(options_.scope, "loss_scale", options_.first);
}

at::Tensor LossScaleOptimizer::scale_cost(const at::Tensor& cost) {
  who_has_scaled() = this;
  return cost * scale().to(cost.device());
}

void LossScaleOptimizer::update(const Gradients& gradients) {
  TP_CHECK(std::exchange(who_has_scaled(), nullptr) == this, "LossScaleOptimizer",
           "the cost was not scaled. Use minimize(), and put no other optimizer around this one.");
  at::Tensor scale = this->scale();
  at::Tensor good_steps = own_scalar(options_.scope, "loss_scale/good_steps", 0, at::kLong);

  Gradients unscaled;
  std::vector<at::Tensor> finite;
  const at::Tensor factor = scale.reciprocal();
  for (const Gradient& gradient : gradients) {
    unscaled.push_back({gradient.variable, gradient.value * factor.to(gradient.value.device())});
    finite.push_back(gradient.value.isfinite().all().to(scale.device()));
  }
  const at::Tensor is_good = at::stack(finite).all();
  detail::apply_gradients_if(is_good, *optimizer_, unscaled);

  good_steps.add_(1).masked_fill_(is_good.logical_not(), 0);
  const at::Tensor grows = good_steps.ge(options_.growth_interval);
  const at::Tensor grown = at::where(grows, scale * options_.growth, scale);
  scale.copy_(at::where(is_good, grown, scale * options_.backoff));
  good_steps.masked_fill_(grows, 0);
}

HyperParams LossScaleOptimizer::hyper_params() const {
  return detail::with_option(optimizer_->hyper_params(), options_.scope, "loss_scale",
                             fmt::to_string(options_.first));
}

}  // namespace tensorpack
