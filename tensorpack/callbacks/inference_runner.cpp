// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_runner.h"

#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>

#include "tensorpack/callbacks/fetch_spec.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/check_batch.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/progress_meter.h"
#include "tensorpack/utils/string.h"

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

// More than validation usually takes: perhaps the data has no end.
constexpr int64_t kManyDatapoints = 10'000;

}  // namespace

void InferenceInput::start() {
  source_->reset_state(0);
  count_ = 0;
}

std::optional<DataPoint> InferenceInput::next() {
  if (may_repeat_ && source_->size() == count_) return std::nullopt;
  if (++count_ == kManyDatapoints && !source_->size()) {
    log::warning_once(
        "[InferenceRunner] its data has given {} datapoints and has not ended. If it never does, "
        "put "
        "take(n) behind it, or leave repeat() out.",
        kManyDatapoints);
  }
  return source_->next();
}

int64_t InferenceInput::left_out() const {
  const auto stats = source_->stats();
  return stats ? datapoints_left_out(*stats) : 0;
}

InferenceRunner::InferenceRunner(InferenceInput input, OwnedList<Inferencer> inferencers,
                                 InferenceRunnerOptions options)
    : input_(std::move(input)), inferencers_(std::move(inferencers)), options_(std::move(options)) {
  TP_CHECK(!inferencers_.empty(), "InferenceRunner",
           "there is no inferencer. Pass at least one, such as ScalarStats({{\"cost\"}}).");
  set_chief_only(!options_.on_all_processes);
}

void InferenceRunner::setup_graph() {
  build_towers();
  check_fetches();
  if (towers_.size() == 1) input_.stage(towers_[0].op().device());
}

void InferenceRunner::build_towers() {
  std::vector<std::optional<c10::Device>> devices = {options_.device};
  if (!options_.devices.list().empty()) {
    TP_CHECK(!options_.device, "InferenceRunner",
             "both .device and .devices are set. Set one of them.");
    devices.assign(options_.devices.list().begin(), options_.devices.list().end());
  }
  towers_.clear();  // of another trainer
  for (const auto& device : devices) {
    towers_.push_back(trainer().build_prediction_tower({
        .name = free_name(graph(), options_.tower_name),
        .tower_func = options_.tower_func,
        .inputs = options_.inputs,
        .device = device,
    }));
  }
}

void InferenceRunner::check_fetches() {
  fetches_.clear();
  indices_.clear();
  for (const Inferencer& inferencer : inferencers_) {
    std::vector<TensorSpec> specs;
    std::vector<size_t>& indices = indices_.emplace_back();
    for (const std::string& name : inferencer.fetches()) {
      specs.push_back(fetch_spec(graph(), towers_[0].op(), name, inferencer.name()));
      const auto found = std::find(fetches_.begin(), fetches_.end(), name);
      indices.push_back(static_cast<size_t>(found - fetches_.begin()));
      if (found == fetches_.end()) fetches_.push_back(name);
    }
    inferencer.check(specs);
    for (const std::string& name : inferencer.reports()) {
      trainer().monitors().claim(name, inferencer.name() + " of '" + towers_[0].name() + "'");
    }
  }
}

// An inferencer that names none may still report some.
ReportedScalars InferenceRunner::reports() const {
  ReportedScalars scalars = no_scalars();
  for (const Inferencer& inferencer : inferencers_) {
    const std::vector<std::string> names = inferencer.reports();
    scalars.names.insert(scalars.names.end(), names.begin(), names.end());
    scalars.are_all = scalars.are_all && !names.empty();
  }
  return scalars;
}

void InferenceRunner::before_train() {
  if (towers_.size() > 1) {
    team_ = std::make_unique<WorkerTeam>("inference", towers_.size());
    sessions_.clear();
    SessionOptions options = trainer().sess().options();
    options.exclusive = false;  // they run at the same time, while training does not go on
    for (size_t i = 0; i < towers_.size(); ++i) {
      sessions_.push_back(std::make_unique<Session>(graph(), options));
    }
  }
  input_.start();
  if (const std::optional<DataPoint> first = input_.next()) {
    try {
      check_batch(towers_[0].op().inputs(), *first);
    } catch (...) {
      rethrow_with(fmt::format("in the first datapoint for '{}'", towers_[0].name()));
    }
  }
  input_.stop();
}

// What belongs to the trainer must not outlive it.
void InferenceRunner::after_train() {
  input_.stop();
  team_.reset();
  sessions_.clear();
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
void InferenceRunner::run_pass(const Take& take) {
  const int64_t left_out_before = input_.left_out();
  input_.start();
  ProgressMeter meter({.total = input_.size().value_or(0), .description = towers_[0].name()});
  try {
    if (towers_.size() == 1) {
      run_on_one(meter, take);
    } else {
      run_on_several(meter, take);
    }
  } catch (...) {
    rethrow_with(
        fmt::format("in datapoint {} of the data for '{}'", meter.done() + 1, towers_[0].name()));
  }
  meter.close();
  input_.stop();
  if (meter.done() == 0) {
    log::warning("[InferenceRunner] the data of '{}' is empty.", towers_[0].name());
  }
  if (const int64_t left_out = input_.left_out() - left_out_before; left_out > 0) {
    log::warning_once(
        "[InferenceRunner] the data of '{}' ended with {} that made no whole batch: left out. Keep "
        "everything with {{.remainder = true}}.",
        towers_[0].name(), counted(left_out, "datapoint"));
  }
}

void InferenceRunner::run_on_one(ProgressMeter& meter, const Take& take) {
  // Read one run late, so that a device has the next one to do meanwhile.
  std::optional<FetchedValues> unread;
  while (const std::optional<DataPoint> datapoint = input_.next()) {
    FetchedValues values = trainer().sess().run(towers_[0].op(), fetches_, feeds(*datapoint));
    if (unread) take(unread->get());
    unread = std::move(values);
    meter.advance();
  }
  if (unread) take(unread->get());
}

// A datapoint for each tower at a time, and at the end of the data as many as are left.
void InferenceRunner::run_on_several(ProgressMeter& meter, const Take& take) {
  while (true) {
    std::vector<Feeds> round;
    while (round.size() < towers_.size()) {
      const std::optional<DataPoint> datapoint = input_.next();
      if (!datapoint) break;
      round.push_back(feeds(*datapoint));
    }
    if (round.empty()) return;
    std::vector<std::vector<at::Tensor>> values(round.size());
    const auto failure = team_->run([&](size_t i) {
      if (i < round.size())
        values[i] = sessions_[i]->run(towers_[i].op(), fetches_, round[i]).get();
    });
    if (failure) std::rethrow_exception(failure->exception);
    for (std::vector<at::Tensor>& fetched : values) {
      take(std::move(fetched));
      meter.advance();
    }
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
  const std::vector<TensorSpec>& inputs = towers_[0].op().inputs();
  check_batch_size(inputs, datapoint);
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) feeds.emplace(inputs[i].name, datapoint[i]);
  return feeds;
}

}  // namespace tensorpack
