// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/merge_all_summaries.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tensorpack/tower/summary.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// The variables of add_moving_summary().
bool is_average(const Variable& variable) {
  return variable.role == VariableRole::kLocal &&
         (variable.name.starts_with("EMA/") || variable.name.starts_with("EMA_weight/"));
}

}  // namespace

MergeAllSummaries::MergeAllSummaries(MergeAllSummariesOptions options) : options_(options) {
  TP_CHECK(options_.period >= 0, "MergeAllSummaries",
           "the period must not be negative, got {}. Pass 0 to report once an epoch.",
           options_.period);
}

void MergeAllSummaries::trigger_step() {
  const bool is_due = trainer().loop().is_last_step_of_epoch() ||
                      (options_.period > 0 && (local_step() + 1) % options_.period == 0);
  if (!is_due) return;
  for (const auto& [name, value] : moving_summaries(graph())) {
    trainer().monitors().put_scalar(name, value);
  }
}

std::string MergeAllSummaries::save_state() const {
  nlohmann::json values = nlohmann::json::object();
  for (const Variable& variable : graph().variables().all()) {
    // In digits that give the very number back, NaN and infinities too.
    if (is_average(variable)) {
      values[variable.name] = fmt::format("{:a}", variable.tensor.item<double>());
    }
  }
  return values.empty() ? "" : values.dump();
}

void MergeAllSummaries::load_state(const std::string& state) {
  const auto values = nlohmann::json::parse(state).get<std::map<std::string, std::string>>();
  for (const Variable& variable : graph().variables().all()) {
    const auto found = values.find(variable.name);
    if (!is_average(variable) || found == values.end()) continue;
    variable.assign(at::scalar_tensor(std::stod(found->second), variable.tensor.options()));
  }
}

}  // namespace tensorpack
