// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/gradient_processor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <regex>

#include "tensorpack/models/symbolic.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/tower/summary.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/regex.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

struct WholeName::Pattern {
  std::regex regex;
};

WholeName::WholeName(const char* where, std::string regex)
    : regex_(std::move(regex)),
      pattern_(std::make_shared<const Pattern>(Pattern{compile_regex(where, regex_)})) {}

bool WholeName::matches(const Variable& variable) const {
  return std::regex_match(variable.tower_free_name(), pattern_->regex);
}

void WholeName::warn_without_match(const char* where, const Gradients& gradients) const {
  const auto is_match = [&](const Gradient& gradient) { return matches(*gradient.variable); };
  if (std::any_of(gradients.begin(), gradients.end(), is_match)) return;
  std::vector<std::string> names;
  for (const Gradient& gradient : gradients) names.push_back(gradient.variable->tower_free_name());
  // One optimizer may update several sets of variables; the pattern may be meant for another one.
  if (CallScope* call = CallScope::current()) {
    const std::string& tower = call->options().variable_prefix;
    for (const Variable* variable : call->graph().variables().trainable("", tower)) {
      if (matches(*variable)) return;
    }
  }
  logging::warning_once(
      "{}('{}') matches the whole name of no variable, and has no effect. {} Patterns are not "
      "searched for in names: '.*conv.*/W' finds 'net/conv0/W', 'conv' does not.",
      where, regex_, did_you_mean(regex_, names));
}

GlobalNormClip::GlobalNormClip(double norm) : norm_(norm) {
  TP_CHECK(norm_ > 0, "GlobalNormClip", "the norm is {}. It must be above 0.", norm_);
}

Gradients GlobalNormClip::process(Gradients gradients) {
  if (gradients.empty()) return gradients;
  std::vector<at::Tensor> norms;
  const c10::Device device = gradients[0].value.device();
  for (const Gradient& gradient : gradients) norms.push_back(gradient.value.norm().to(device));
  const at::Tensor factor = norm_ / at::stack(norms).norm().clamp_min(norm_);
  for (Gradient& gradient : gradients) {
    gradient.value = gradient.value * factor.to(gradient.value.device());
  }
  return gradients;
}

MapGradient::MapGradient(Function function, std::string regex)
    : MapGradient(FunctionOfVariable([function = std::move(function)](const at::Tensor& gradient,
                                                                      const Variable&) {
                    return function(gradient);
                  }),
                  std::move(regex)) {}

MapGradient::MapGradient(FunctionOfVariable function, std::string regex)
    : function_(std::move(function)), pattern_("MapGradient", std::move(regex)) {}

Gradients MapGradient::process(Gradients gradients) {
  pattern_.warn_without_match("MapGradient", gradients);
  Gradients mapped;
  for (Gradient& gradient : gradients) {
    if (!pattern_.matches(*gradient.variable)) {
      mapped.push_back(std::move(gradient));
      continue;
    }
    if (std::optional<at::Tensor> value = function_(gradient.value, *gradient.variable)) {
      mapped.push_back({gradient.variable, std::move(*value)});
    }
  }
  return mapped;
}

ScaleGradient::ScaleGradient(const std::vector<Rule>& rules) {
  for (const auto& [regex, factor] : rules) {
    rules_.emplace_back(WholeName("ScaleGradient", regex), factor);
  }
  TP_CHECK(!rules_.empty(), "ScaleGradient", "there are no rules. Pass {{{{\"fc.*\", 0.1}}}}.");
}

Gradients ScaleGradient::process(Gradients gradients) {
  for (const auto& [pattern, factor] : rules_) {
    pattern.warn_without_match("ScaleGradient", gradients);
  }
  Gradients scaled;
  for (Gradient& gradient : gradients) {
    double factor = 1;
    for (const auto& [pattern, rule_factor] : rules_) {
      if (!pattern.matches(*gradient.variable)) continue;
      factor = rule_factor;
      logging::info_once("The gradient of '{}' is multiplied by {}.",
                         gradient.variable->tower_free_name(), factor);
      break;
    }
    if (factor == 0) continue;
    if (factor != 1) gradient.value = gradient.value * factor;
    scaled.push_back(std::move(gradient));
  }
  return scaled;
}

Gradients CheckGradient::process(Gradients gradients) {
  std::vector<at::Tensor> values;
  std::vector<std::string> names;
  for (const Gradient& gradient : gradients) {
    values.push_back(gradient.value);
    names.push_back(gradient.variable->tower_free_name());
  }
  if (!values.empty()) kernels::check_finite(values, names);
  return gradients;
}

PrintGradient::PrintGradient(const std::string& regex) : pattern_("PrintGradient", regex) {}

Gradients PrintGradient::process(Gradients gradients) {
  pattern_.warn_without_match("PrintGradient", gradients);
  for (const Gradient& gradient : gradients) {
    if (!pattern_.matches(*gradient.variable)) continue;
    print_stat(gradient.value, "Gradient of '" + gradient.variable->tower_free_name() + "'");
  }
  return gradients;
}

SummaryGradient::SummaryGradient(const std::string& regex) : pattern_("SummaryGradient", regex) {}

Gradients SummaryGradient::process(Gradients gradients) {
  if (TowerContext::current() == nullptr) return gradients;
  pattern_.warn_without_match("SummaryGradient", gradients);
  for (const Gradient& gradient : gradients) {
    if (!pattern_.matches(*gradient.variable)) continue;
    const std::string name = gradient.variable->tower_free_name() + "-grad";
    add_moving_summary(name + "/rms", gradient.value.square().mean().sqrt());
    // A copy: what comes later may write the gradient.
    add_tensor_summary(name, gradient.value.clone(), {SummaryType::kHistogram});
  }
  return gradients;
}

GradProcessingOptimizer::GradProcessingOptimizer(Owned<Optimizer> optimizer,
                                                 OwnedList<GradientProcessor> processors)
    : optimizer_(std::move(optimizer)), processors_(std::move(processors)) {
  TP_CHECK(static_cast<bool>(optimizer_), "apply_grad_processors",
           "there is no optimizer. Pass one, for example Momentum(0.1).");
}

void GradProcessingOptimizer::update(const Gradients& gradients) {
  Gradients processed = gradients;
  for (GradientProcessor& processor : processors_) {
    processed = processor.process(std::move(processed));
  }
  optimizer_->apply_gradients(processed);
}

GradProcessingOptimizer apply_grad_processors(Owned<Optimizer> optimizer,
                                              OwnedList<GradientProcessor> processors) {
  return {std::move(optimizer), std::move(processors)};
}

}  // namespace tensorpack
