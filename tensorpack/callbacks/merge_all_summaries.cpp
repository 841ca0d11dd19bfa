// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/merge_all_summaries.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/regex.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// The variables of add_moving_summary().
bool is_average(const Variable& variable) {
  return variable.role == VariableRole::kLocal &&
         (variable.name.starts_with("EMA/") || variable.name.starts_with("EMA_weight/"));
}

// Of a variable that is summarised.
std::string name_of(const Variable& variable, SummaryType type) {
  return "param-summary/" + variable.name + detail::suffix_of(type);
}

void put_summary(Monitors& monitors, const std::string& name, const at::Tensor& values,
                 SummaryType type) {
  if (type == SummaryType::kHistogram) {
    monitors.put_histogram(name, values);
  } else {
    monitors.put_scalar(name, detail::summarize(values, type));
  }
}

}  // namespace

MergeAllSummaries::MergeAllSummaries(MergeAllSummariesOptions options) : options_(options) {
  TP_CHECK(options_.period >= 0, "MergeAllSummaries",
           "the period must not be negative, got {}. Pass 0 to report once an epoch.",
           options_.period);
}

void MergeAllSummaries::before_train() {
  fetched_.clear();
  summaries_ = &detail::summaries_of(graph());
  for (const auto& [name, text] : summaries_->texts) {
    trainer().monitors().put_text(name, text);
  }
}

bool MergeAllSummaries::is_due() const {
  return trainer().loop().is_last_step_of_epoch() ||
         (options_.period > 0 && (local_step() + 1) % options_.period == 0);
}

// In a step of several runs each summary is taken from the first that has it.
RunArgs MergeAllSummaries::before_run(RunContext& context) {
  if (summaries_->tensors.empty() || !is_due()) return {};
  const auto is_taken = [&](const detail::TensorSummary& summary) {
    for (const Fetched& run : fetched_) {
      for (const auto& taken : run.summaries) {
        if (taken.fetch == summary.fetch) return true;
      }
    }
    return false;
  };
  Fetched run;
  RunArgs args;
  for (const detail::TensorSummary& summary : summaries_->tensors) {
    if (!context.op().has_output(summary.fetch) || is_taken(summary)) continue;
    run.summaries.push_back(summary);
    args.fetches.push_back(summary.fetch);
  }
  if (!args.fetches.empty()) fetched_.push_back(std::move(run));
  return args;
}

void MergeAllSummaries::after_run(RunContext&, const FetchedValues& values) {
  if (!values.empty()) fetched_.back().values = values;
}

void MergeAllSummaries::trigger_step() {
  if (!is_due()) return;
  for (const auto& [name, value] : moving_summaries(graph())) {
    trainer().monitors().put_scalar(name, value);
  }
  put_tensors();
  put_params();
}

// Names of images and histograms among them do no harm.
ReportedScalars MergeAllSummaries::reports() const {
  ReportedScalars scalars = no_scalars();
  const std::string average = "EMA/";
  for (const Variable& variable : graph().variables().all()) {
    if (is_average(variable) && variable.name.starts_with(average)) {
      scalars.names.push_back(variable.name.substr(average.size()));
    }
  }
  const detail::Summaries& summaries = detail::summaries_of(graph());
  for (const detail::TensorSummary& summary : summaries.tensors) {
    scalars.names.push_back(summary.name);
  }
  for (const ParamSummary& param : summaries.params) {
    for (const Variable* variable : variables_of(param)) {
      for (const SummaryType type : param.types) {
        scalars.names.push_back(name_of(*variable, type));
      }
    }
  }
  return scalars;
}

void MergeAllSummaries::put_tensors() {
  Monitors& monitors = trainer().monitors();
  for (const Fetched& run : std::exchange(fetched_, {})) {
    for (size_t i = 0; i < run.values.size(); ++i) {
      const auto& [name, fetch, is_image, type] = run.summaries[i];
      if (is_image) {
        monitors.put_image(name, run.values[i]);
      } else {
        put_summary(monitors, name, run.values[i], type);
      }
    }
  }
}

std::vector<const Variable*> MergeAllSummaries::variables_of(const ParamSummary& param) const {
  const std::regex regex = compile_regex("add_param_summary", param.regex);
  std::vector<const Variable*> variables;
  for (const Variable* variable : graph().variables().trainable()) {
    if (std::regex_match(variable->name, regex)) variables.push_back(variable);
  }
  return variables;
}

void MergeAllSummaries::put_params() {
  const auto value_of = [&](const Variable& variable) {
    const auto lock = graph().lock_variables();  // not around monitors, which may be the user's
    return variable.tensor.detach().clone();
  };
  for (const ParamSummary& param : summaries_->params) {
    const std::vector<const Variable*> variables = variables_of(param);
    for (const Variable* variable : variables) {
      const at::Tensor value = value_of(*variable);
      for (const SummaryType type : param.types) {
        put_summary(trainer().monitors(), name_of(*variable, type), value, type);
      }
    }
    if (variables.empty()) {
      logging::warning_once("[add_param_summary] no trainable variable has a name like '{}'.",
                            param.regex);
    }
  }
}

std::string MergeAllSummaries::save_state() const {
  const auto lock = graph().lock_variables();
  nlohmann::json values = nlohmann::json::object();
  for (const Variable& variable : graph().variables().all()) {
    // In digits that give the very number back, NaN and infinities too.
    if (is_average(variable)) {
      values[variable.name] = exact_text(variable.tensor.item<double>());
    }
  }
  return values.empty() ? "" : values.dump();
}

void MergeAllSummaries::load_state(const std::string& state) {
  const auto values = nlohmann::json::parse(state).get<std::map<std::string, std::string>>();
  const auto lock = graph().lock_variables();
  for (const Variable& variable : graph().variables().all()) {
    const auto found = values.find(variable.name);
    if (!is_average(variable) || found == values.end()) continue;
    variable.assign(at::scalar_tensor(parse_exact_text(found->second), variable.tensor.options()));
  }
}

}  // namespace tensorpack
