// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session_init.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Optimizer state and the like: its absence is no reason to warn who only wants the weights.
bool is_training_only(const std::string& name) {
  static const std::vector<std::string> suffixes = {
      "/Momentum", "/Adam_m", "/Adam_v", "/LAMB_m", "/LAMB_v", "/RMSProp", "/RMSProp_mean",
      "/RMSProp_momentum", "/Adagrad", "/AccumGrad", "/MovingAverage",
      // Step counts.
      "Adam/step", "Adagrad/step", "LAMB/step", "AccumGrad/step", "MovingAverage/step",
      "loss_scale/good_steps",
      // Of an optimizer with a scope.
      "/learning_rate", "/loss_scale"};
  for (const std::string& suffix : suffixes) {
    if (name.ends_with(suffix)) return true;
  }
  return name == "global_step" || name == "learning_rate" || name == "loss_scale" ||
         name.starts_with("EMA/");
}

bool may_cast(c10::ScalarType from, c10::ScalarType to) {
  if (c10::isFloatingType(from) && c10::isFloatingType(to)) return true;
  return c10::isIntegralType(from, false) && c10::isIntegralType(to, false) &&
         c10::elementSize(from) <= c10::elementSize(to);
}

// The value in the variable's shape and type, or undefined if it cannot be had.
at::Tensor fit(const Variable& variable, at::Tensor value, bool relaxed) {
  const at::Tensor& target = variable.tensor;
  if (value.sizes() == target.sizes() && value.scalar_type() == target.scalar_type()) return value;
  const std::string difference =
      fmt::format("'{}' is {} [{}] and the stored value {} [{}]", variable.name,
                  c10::toString(target.scalar_type()), fmt::join(target.sizes(), ", "),
                  c10::toString(value.scalar_type()), fmt::join(value.sizes(), ", "));
  TP_CHECK(relaxed, "restore",
           "{}. Load the checkpoint this model wrote, or set RestoreOptions::relaxed to reshape, "
           "cast and skip what does not fit.",
           difference);
  const bool fits =
      value.numel() == target.numel() && (value.scalar_type() == target.scalar_type() ||
                                          may_cast(value.scalar_type(), target.scalar_type()));
  if (!fits) {
    log::warning("Not restored: {}.", difference);
    return {};
  }
  log::warning("Restored with a change: {}.", difference);
  return value.reshape(target.sizes()).to(target.scalar_type());
}

void restore(Graph& graph, const NamedTensors& values, const RestoreOptions& options) {
  std::vector<std::string> only_in_graph, only_in_values;
  for (const Variable& variable : graph.variables().all()) {
    if (!variable.is_saved() || contains(options.ignore, variable.name)) continue;
    auto found = values.find(variable.name);
    if (found == values.end()) {
      if (!is_training_only(variable.name)) only_in_graph.push_back(variable.name);
      continue;
    }
    const at::Tensor value = fit(variable, found->second, options.relaxed);
    if (value.defined()) variable.assign(value);
  }
  for (const auto& [name, value] : values) {
    const bool known = graph.variables().find(name) != nullptr;
    if (!known && !contains(options.ignore, name) && !is_training_only(name)) {
      only_in_values.push_back(name);
    }
  }
  if (!only_in_graph.empty()) {
    log::warning("{} variables of the graph are not in what is restored and keep their values: {}.",
                 only_in_graph.size(), join(only_in_graph));
  }
  if (!only_in_values.empty()) {
    log::warning("{} restored values belong to no variable of the graph and are not used: {}.",
                 only_in_values.size(), join(only_in_values));
  }
}

}  // namespace

DictRestore::DictRestore(NamedTensors values, RestoreOptions options)
    : values_(std::move(values)), options_(std::move(options)) {}

void DictRestore::init(Graph& graph) { restore(graph, values_, options_); }

SaverRestore::SaverRestore(std::filesystem::path path, RestoreOptions options)
    : path_(std::move(path)), options_(std::move(options)) {}

void SaverRestore::init(Graph& graph) {
  const Checkpoint checkpoint = load_checkpoint(path_);
  log::info("Restoring the checkpoint of step {} from {}.", checkpoint.global_step, path_.string());
  restore(graph, checkpoint.variables, options_);
}

void ChainInit::init(Graph& graph) {
  for (SessionInit& init : inits_) init.init(graph);
}

Owned<SessionInit> smart_init(const std::filesystem::path& path, RestoreOptions options) {
  if (path.empty()) return nullptr;
  return SaverRestore(path, std::move(options));
}

Owned<SessionInit> smart_init(NamedTensors values, RestoreOptions options) {
  return DictRestore(std::move(values), std::move(options));
}

}  // namespace tensorpack
