// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/summary.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/regex.h"

namespace tensorpack {
namespace {

constexpr std::string_view kAverage = "EMA/";
constexpr std::string_view kWeight =
    "EMA_weight/";  // how much of the average is data: 1 - decay^runs

std::string variable_name(std::string_view prefix, const std::string& summary) {
  return std::string(prefix) + summary;
}

at::Tensor local_scalar(TowerContext& tower, const std::string& name) {
  Graph& graph = tower.graph();
  if (Variable* found = graph.variables().find(name)) return found->tensor;
  return graph.create_variable(name, {}, {.role = VariableRole::kLocal}, tower.device()).tensor;
}

bool is_keeping_summaries(const char* where) {
  TowerContext* tower = TowerContext::current();
  TP_CHECK(tower != nullptr, where, "it is called outside a tower function. Call it inside one.");
  return tower->is_main_training_tower();
}

// A scope that is used again reports what its first use did: that goes on, with a warning.
bool is_reused(const char* where, const std::string& name) {
  const Reuse reuse = VariableScope::current_reuse();
  if (reuse != Reuse::kReuse && reuse != Reuse::kAuto) return false;
  logging::warning_once(
      "[{}] the scope '{}' is used again: the summary '{}' is that of its first use.", where,
      VariableScope::current_path(), name);
  return true;
}

// Registers what is reported of `tensor`, by giving it a name that ops can fetch it by. The
// function of an op is called several times: what is known already is not added again.
void add_summary(const char* where, detail::TensorSummary summary, const at::Tensor& tensor) {
  TowerContext& tower = *TowerContext::current();
  summary.fetch = VariableScope::path_of("summary/" + summary.name);
  auto& all = detail::summaries_of(tower.graph()).tensors;
  const auto known = std::find_if(all.begin(), all.end(),
                                  [&](const auto& one) { return one.name == summary.name; });
  const bool is_taken = tower.call().named_tensors().contains(summary.fetch) ||
                        (known != all.end() && known->fetch != summary.fetch);
  if (is_taken && is_reused(where, summary.name)) return;
  TP_CHECK(!is_taken, where, "there is already a summary '{}' in this tower. Name it otherwise.",
           summary.name);
  named("summary/" + summary.name, tensor.detach());
  if (known == all.end()) all.push_back(std::move(summary));
}

void check_name(const char* where, const std::string& name) {
  TP_CHECK(!name.empty(), where, "the name is empty. Give it one.");
}

std::string shape_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

// [N, C, H, W].
at::Tensor with_channels(const at::Tensor& images) {
  return images.dim() == 4 ? images : images.unsqueeze(1);
}

}  // namespace

void add_moving_summary(const std::string& name, const at::Tensor& scalar,
                        MovingSummaryOptions options) {
  if (!is_keeping_summaries("add_moving_summary")) return;
  TP_CHECK(!name.empty(), "add_moving_summary", "the name is empty. Give it one.");
  TP_CHECK(
      scalar.defined() && scalar.dim() == 0, "add_moving_summary",
      "'{}' must be a scalar, got a tensor of shape [{}]. Reduce it, for example with .mean().",
      name, scalar.defined() ? fmt::format("{}", fmt::join(scalar.sizes(), ", ")) : "undefined");
  TP_CHECK(options.decay >= 0 && options.decay < 1, "add_moving_summary",
           "the decay of '{}' is {}. It must lie in [0, 1).", name, options.decay);
  TowerContext& tower = *TowerContext::current();
  const auto& taken = tower.call().collection(Collection::kMovingSummaries);
  const bool is_taken =
      std::any_of(taken.begin(), taken.end(), [&](const auto& item) { return item.first == name; });
  if (is_taken && is_reused("add_moving_summary", name)) return;
  TP_CHECK(!is_taken, "add_moving_summary",
           "there is already a summary '{}' in this tower. Name it otherwise.", name);
  tower.call().add_to_collection(Collection::kMovingSummaries, name, scalar);

  at::NoGradGuard no_grad;
  at::Tensor weight = local_scalar(tower, variable_name(kWeight, name));
  at::Tensor average = local_scalar(tower, variable_name(kAverage, name));
  weight.mul_(options.decay).add_(1 - options.decay);
  average.lerp_(scalar.detach().to(average.options()), (1 - options.decay) / weight);
}

void detail::add_named_moving_summary(const at::Tensor& scalar) {
  if (!is_keeping_summaries("add_moving_summary")) return;
  const std::string name = TowerContext::current()->call().name_of(scalar);
  TP_CHECK(!name.empty(), "add_moving_summary",
           "the tensor has no name. Write named(\"cost\", tensor) first, or "
           "add_moving_summary(\"cost\", tensor).");
  add_moving_summary(name, scalar);
}

void add_image_summary(const std::string& name, const at::Tensor& images, int64_t max_images) {
  constexpr const char* kWhere = "add_image_summary";
  if (!is_keeping_summaries(kWhere)) return;
  check_name(kWhere, name);
  const bool is_batch = images.defined() && (images.dim() == 3 || images.dim() == 4);
  TP_CHECK(
      is_batch &&
          (images.dim() == 3 || images.size(1) == 1 || images.size(1) == 3 || images.size(1) == 4),
      kWhere, "'{}' has the shape {}. Give [N, C, H, W] with 1, 3 or 4 channels, or [N, H, W].",
      name, shape_of(images));
  TP_CHECK(max_images > 0, kWhere, "max_images of '{}' is {}. Show one or more.", name, max_images);
  at::NoGradGuard no_grad;
  const int64_t count = std::min(max_images, images.size(0));
  add_summary(kWhere, {.name = name, .is_image = true}, with_channels(images.slice(0, 0, count)));
}

void add_tensor_summary(const std::string& name, const at::Tensor& tensor, SummaryTypes types) {
  constexpr const char* kWhere = "add_tensor_summary";
  if (!is_keeping_summaries(kWhere)) return;
  check_name(kWhere, name);
  TP_CHECK(tensor.defined() && !types.empty(), kWhere,
           "'{}' needs a tensor and at least one type, such as SummaryType::kHistogram.", name);
  for (const SummaryType type : types) {
    TP_CHECK(type != SummaryType::kScalar || tensor.dim() == 0, kWhere,
             "'{}' must be a scalar for SummaryType::kScalar, got the shape {}.", name,
             shape_of(tensor));
    add_summary(kWhere, {.name = name + detail::suffix_of(type), .type = type}, tensor);
  }
}

void add_activation_summary(const std::string& name, const at::Tensor& activation,
                            SummaryTypes types) {
  if (!is_keeping_summaries("add_activation_summary")) return;
  TP_CHECK(activation.defined(), "add_activation_summary",
           "'{}' is an undefined tensor. Compute it first.", name);
  if (activation.dim() < 2) {
    logging::warning_once(
        "[add_activation_summary] '{}' has {} and is left out: an activation has two dimensions or "
        "more. For others use add_tensor_summary().",
        name, activation.dim() == 0 ? "no dimension" : "one dimension");
    return;
  }
  add_tensor_summary("activation-summary/" + name, activation, std::move(types));
}

void add_param_summary(const std::vector<ParamSummary>& params) {
  if (!is_keeping_summaries("add_param_summary")) return;
  auto& known = detail::summaries_of(TowerContext::current()->graph()).params;
  for (const ParamSummary& param : params) {
    compile_regex("add_param_summary", param.regex);
    TP_CHECK(!param.types.empty(), "add_param_summary",
             "'{}' has no types. Give one, such as SummaryType::kRms.", param.regex);
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const ParamSummary& one) {
      return one.regex == param.regex && one.types == param.types;
    });
    if (!is_known) known.push_back(param);
  }
}

void add_text(const std::string& name, const std::string& text) {
  if (!is_keeping_summaries("add_text")) return;
  check_name("add_text", name);
  auto& texts = detail::summaries_of(TowerContext::current()->graph()).texts;
  const std::pair entry(name, text);
  if (std::find(texts.begin(), texts.end(), entry) == texts.end()) texts.push_back(entry);
}

detail::Summaries& detail::summaries_of(Graph& graph) { return graph.attached<Summaries>(); }

double detail::summarize(const at::Tensor& values, SummaryType type) {
  at::NoGradGuard no_grad;
  const at::Tensor numbers = values.to(at::kDouble);
  switch (type) {
    case SummaryType::kScalar:
    case SummaryType::kMean:
      return numbers.mean().item<double>();
    case SummaryType::kSparsity:
      return numbers.eq(0).to(at::kDouble).mean().item<double>();
    case SummaryType::kRms:
      return numbers.square().mean().sqrt().item<double>();
    case SummaryType::kHistogram:
      break;
  }
  throw InternalError("a histogram is not one number");
}

std::string detail::suffix_of(SummaryType type) {
  switch (type) {
    case SummaryType::kScalar:
      return "-summary";
    case SummaryType::kHistogram:
      return "-histogram";
    case SummaryType::kSparsity:
      return "-sparsity";
    case SummaryType::kMean:
      return "-mean";
    case SummaryType::kRms:
      return "-rms";
  }
  return "";
}

std::vector<std::pair<std::string, double>> moving_summaries(const Graph& graph) {
  const auto lock = graph.lock_variables();
  std::vector<std::pair<std::string, double>> values;
  for (const Variable& weight : graph.variables().all()) {
    if (!weight.name.starts_with(kWeight) || weight.tensor.item<double>() == 0) continue;
    const std::string name = weight.name.substr(kWeight.size());
    const Variable* average = graph.variables().find(variable_name(kAverage, name));
    values.emplace_back(name, average->tensor.item<double>());
  }
  return values;
}

}  // namespace tensorpack
