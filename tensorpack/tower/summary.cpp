// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/summary.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

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
  TP_CHECK(std::none_of(taken.begin(), taken.end(),
                        [&](const auto& item) { return item.first == name; }),
           "add_moving_summary",
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

std::vector<std::pair<std::string, double>> moving_summaries(const Graph& graph) {
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
