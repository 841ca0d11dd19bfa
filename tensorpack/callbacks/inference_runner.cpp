// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_runner.h"

#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>

#include "tensorpack/callbacks/fetch_spec.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/check_batch.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/progress_meter.h"

namespace tensorpack {
namespace {

// Two runners with the default name are a common and harmless thing.
std::string free_name(const Graph& graph, const std::string& wanted) {
  const auto is_taken = [&](const std::string& name) {
    return std::any_of(graph.ops().begin(), graph.ops().end(),
                       [&](const Op& op) { return op.name() == name; });
  };
  std::string name = wanted;
  for (int i = 1; is_taken(name); ++i) name = wanted + std::to_string(i);
  return name;
}

}  // namespace

void InferenceInput::start() {
  source_->reset_state(0);
  count_ = 0;
}

std::optional<DataPoint> InferenceInput::next() {
  if (may_repeat_ && source_->size() == count_) return std::nullopt;
  ++count_;
  return source_->next();
}

InferenceRunner::InferenceRunner(InferenceInput input, OwnedList<Inferencer> inferencers,
                                 InferenceRunnerOptions options)
    : input_(std::move(input)), inferencers_(std::move(inferencers)), options_(std::move(options)) {
  TP_CHECK(!inferencers_.empty(), "InferenceRunner",
           "there is no inferencer. Pass at least one, such as ScalarStats({{\"cost\"}}).");
  set_chief_only(!options_.on_all_processes);
}

void InferenceRunner::setup_graph() {
  tower_ = trainer().build_prediction_tower({
      .name = free_name(graph(), options_.tower_name),
      .tower_func = options_.tower_func,
      .inputs = options_.inputs,
      .device = options_.device,
  });
  check_fetches();
  input_.stage(tower_->op().device());
}

void InferenceRunner::check_fetches() {
  fetches_.clear();
  indices_.clear();
  for (const Inferencer& inferencer : inferencers_) {
    std::vector<TensorSpec> specs;
    std::vector<size_t>& indices = indices_.emplace_back();
    for (const std::string& name : inferencer.fetches()) {
      specs.push_back(fetch_spec(graph(), tower_->op(), name, inferencer.name()));
      const auto found = std::find(fetches_.begin(), fetches_.end(), name);
      indices.push_back(static_cast<size_t>(found - fetches_.begin()));
      if (found == fetches_.end()) fetches_.push_back(name);
    }
    inferencer.check(specs);
    for (const std::string& name : inferencer.reports()) {
      trainer().monitors().claim(name, inferencer.name() + " of '" + tower_->name() + "'");
    }
  }
}

void InferenceRunner::before_train() {
  input_.start();
  if (const std::optional<DataPoint> first = input_.next()) {
    try {
      check_batch(tower_->op().inputs(), *first);
    } catch (...) {
      rethrow_with(fmt::format("in the first datapoint for '{}'", tower_->name()));
    }
  }
  input_.stop();
}

void InferenceRunner::trigger() {
  for (Inferencer& inferencer : inferencers_) inferencer.before_inference();
  if (options_.on_all_processes && trainer().processes() != nullptr) {
    run_pass_on_all(*trainer().processes());
  } else {
    run_pass([&](const std::vector<at::Tensor>& values) { hand_out(values); });
  }
  for (Inferencer& inferencer : inferencers_) {
    for (const auto& [name, value] : inferencer.after_inference()) {
      trainer().monitors().put_scalar(name, value);
    }
  }
}

// Hands what was fetched for every datapoint to `take`.
void InferenceRunner::run_pass(const std::function<void(std::vector<at::Tensor>)>& take) {
  input_.start();
  ProgressMeter meter({.total = input_.size().value_or(0), .description = tower_->name()});
  const auto read = [&](const FetchedValues& values) {
    std::vector<at::Tensor> tensors;
    for (size_t i = 0; i < fetches_.size(); ++i) tensors.push_back(values[i]);
    take(std::move(tensors));
  };
  // Read one run late, so that a device has the next one to do meanwhile.
  std::optional<FetchedValues> unread;
  try {
    while (const std::optional<DataPoint> datapoint = input_.next()) {
      FetchedValues values = trainer().sess().run(tower_->op(), fetches_, feeds(*datapoint));
      if (unread) read(*unread);
      unread = std::move(values);
      meter.advance();
    }
    if (unread) read(*unread);
  } catch (...) {
    rethrow_with(
        fmt::format("in datapoint {} of the data for '{}'", meter.done() + 1, tower_->name()));
  }
  meter.close();
  input_.stop();
  if (meter.done() == 0) {
    log::warning("[InferenceRunner] the data of '{}' is empty.", tower_->name());
  }
}

void InferenceRunner::run_pass_on_all(ProcessGroup& processes) {
  c10::List<std::vector<at::Tensor>> own;
  run_pass([&](std::vector<at::Tensor> values) { own.push_back(std::move(values)); });
  const std::vector<char> bytes = torch::jit::pickle_save(own);
  for (const std::string& text : processes.gather(std::string(bytes.begin(), bytes.end()))) {
    const c10::IValue all = torch::jit::pickle_load(std::vector<char>(text.begin(), text.end()));
    for (const c10::IValue& values : all.toListRef()) hand_out(values.toTensorVector());
  }
}

void InferenceRunner::hand_out(const std::vector<at::Tensor>& values) {
  for (size_t i = 0; i < inferencers_.size(); ++i) {
    std::vector<at::Tensor> own;
    for (size_t index : indices_[i]) own.push_back(values[index]);
    inferencers_[i].on_fetches(own);
  }
}

Feeds InferenceRunner::feeds(const DataPoint& datapoint) const {
  const std::vector<TensorSpec>& inputs = tower_->op().inputs();
  check_batch_size(inputs, datapoint);
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) feeds.emplace(inputs[i].name, datapoint[i]);
  return feeds;
}

}  // namespace tensorpack
