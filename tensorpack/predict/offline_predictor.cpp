// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

#include "tensorpack/optim/moving_average.h"
#include "tensorpack/predict/detail/needs.h"
#include "tensorpack/predict/multi_tower_predictor.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

namespace {

// By how often each was written.
std::map<const Variable*, int64_t> versions_of(const Graph& graph) {
  std::map<const Variable*, int64_t> versions;
  for (const Variable& variable : graph.variables().all()) {
    versions[&variable] = static_cast<int64_t>(variable.tensor._version());
  }
  return versions;
}

// The variables that session_init, whatever it consists of, left as they were.
std::set<const Variable*> restore(SessionInit& session_init, Graph& graph) {
  const auto before = versions_of(graph);
  session_init.init(graph);
  std::set<const Variable*> without_value;
  for (const auto& [variable, version] : versions_of(graph)) {
    if (before.at(variable) == version) without_value.insert(variable);
  }
  return without_value;
}

// Of what session_init has no value for, what the outputs are computed from.
std::vector<std::string> missing_weights(const PredictConfig& config, Graph& graph, const Op& op,
                                         const std::set<const Variable*>& without_value) {
  std::set<std::string> missing;
  for (const std::string& name : config.session_init->missing()) {
    if (without_value.contains(graph.variables().find(name))) missing.insert(name);
  }
  if (missing.empty()) return {};
  const detail::Needs needs(graph, op);
  if (!needs.are_known()) return {missing.begin(), missing.end()};
  std::set<std::string> needed;
  for (const std::string& output : config.output_names) {
    needed.merge(needs.variables_of(output));
  }
  std::erase_if(missing, [&](const std::string& name) { return !needed.contains(name); });
  return {missing.begin(), missing.end()};
}

}  // namespace

void detail::init_variables(const PredictConfig& config, Graph& graph, const Op& op) {
  if (!config.session_init) {
    const auto count = std::ssize(graph.variables().trainable());
    if (count == 0) return;
    logging::warning("No session_init is given: the model has the first values of its {}.",
                     counted(count, "variable"));
    return;
  }
  std::set<const Variable*> without_value = restore(*config.session_init, graph);
  complete_moving_averages(graph, without_value);
  if (config.allow_missing) return;
  const std::vector<std::string> missing = missing_weights(config, graph, op, without_value);
  TP_CHECK(missing.empty(), "predictor",
           "what is restored has no value for {} that the outputs ({}) need: {}. Restore what this "
           "model saved, translate the names (RestoreOptions::names), or set "
           "PredictConfig::allow_missing to predict with first values there.",
           counted(std::ssize(missing), "variable"), join(config.output_names), join(missing));
}

OfflinePredictor::OfflinePredictor(PredictConfig config)
    : OfflinePredictor(MultiTowerOfflinePredictor(std::move(config))[0]) {}

OfflinePredictor::OfflinePredictor(std::shared_ptr<Graph> graph,
                                   std::shared_ptr<const OnlinePredictor> predictor)
    : graph_(std::move(graph)), predictor_(std::move(predictor)) {}

}  // namespace tensorpack
