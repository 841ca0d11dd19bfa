// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_runner.h"

#include <fmt/ranges.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>

#include "tensorpack/callbacks/fetch_spec.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/check_batch.h"
#include "tensorpack/utils/detail/tensor_writes.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/progress_meter.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/worker_team.h"

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
constexpr int64_t kTooManyDatapoints = 1'000'000;

// How long a pass goes on after a signal to end: a checkpoint is to be saved before the process is
// killed.
constexpr std::chrono::seconds kPatience{5};

/// For a pass of all processes: they give up together, whichever of them received the signal.
class SharedPatience {
 public:
  explicit SharedPatience(ProcessGroup& processes) : processes_(processes) {}

  int signal_when_over() {
    const int pending = pending_signal();
    if (pending != 0) processes_.share_signal(pending);
    return patience_.signal_when_over(pending != 0 ? pending : processes_.shared_signal());
  }

 private:
  ProcessGroup& processes_;
  PatienceAfterSignal patience_{kPatience};
};

// How many samples a datapoint has: see InferenceRunnerOptions::count_samples. nullopt where the
// inputs differ.
std::optional<int64_t> samples_of_inputs(const std::vector<TensorSpec>& inputs,
                                         const DataPoint& datapoint) {
  std::set<int64_t> sizes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_open = !inputs[i].shape.empty() && inputs[i].shape[0] < 0;
    if (!is_open || !datapoint[i].defined() || datapoint[i].dim() == 0) continue;
    sizes.insert(datapoint[i].size(0));
  }
  if (sizes.size() > 1) return std::nullopt;
  if (!sizes.empty()) return *sizes.begin();
  const bool has_first = !datapoint.empty() && datapoint[0].defined() && datapoint[0].dim() > 0;
  return has_first ? datapoint[0].size(0) : 1;
}

void warn_if_empty(int64_t datapoints, const std::string& tower) {
  if (datapoints == 0) logging::warning("[InferenceRunner] the data of '{}' is empty.", tower);
}

// In all processes alike: each counts what shard() keeps from all.
void check_nothing_left_out(int64_t by_shard, const std::string& tower) {
  TP_CHECK(by_shard == 0, "InferenceRunner",
           ".on_all_processes is set, and shard() left {} of the data of '{}' out, so that all "
           "parts are equally long: it would not be counted. Write shard({{.equal = false}}).",
           counted(by_shard, "datapoint"), tower);
}

// "image [480, 640, 3], boxes [12, 4]".
std::string describe_sizes(const std::vector<TensorSpec>& inputs, const DataPoint& datapoint) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!datapoint[i].defined()) continue;
    texts.push_back(fmt::format("{} [{}]", inputs[i].name, fmt::join(datapoint[i].sizes(), ", ")));
  }
  return join(texts);
}

}  // namespace

void InferenceInput::check_ends() const {
  TP_CHECK(!source_->is_endless() || source_->size(), "InferenceRunner",
           "the data, {}, never ends, and a pass over it would not. Leave repeat() out, or end the "
           "pass with take(n); give a TensorInput its size.",
           source_->name());
}

void InferenceInput::start() {
  source_->reset_state(0);
  count_ = 0;
}

std::optional<DataPoint> InferenceInput::next() {
  if (!ends_with_pass_ && source_->size() == count_) return std::nullopt;
  if (const int signal = signal_to_give_up()) throw Interrupted(signal);
  std::optional<DataPoint> datapoint = source_->next();
  if (!datapoint) return std::nullopt;
  ++count_;
  if (!source_->size()) check_that_it_ends();
  return datapoint;
}

void InferenceInput::check_that_it_ends() const {
  if (count_ == kManyDatapoints) {
    logging::warning_once(
        "[InferenceRunner] its data has given {} datapoints and has not ended. If it never does, "
        "end the pass with take(n), or leave repeat() out.",
        kManyDatapoints);
  }
  TP_CHECK(count_ <= kTooManyDatapoints, "InferenceRunner",
           "the data, {}, has given {} datapoints and has not ended. End the pass with take(n); if "
           "it is that long, say how long with fixed_size(n).",
           source_->name(), kTooManyDatapoints);
}

int64_t InferenceInput::left_out() const {
  const auto stats = source_->stats();
  return stats ? datapoints_left_out(*stats) - left_out_by_shard().so_far : 0;
}

InferenceInput::ByShard InferenceInput::left_out_by_shard() const {
  ByShard sum;
  const auto stats = source_->stats();
  if (!stats) return sum;
  for (const StageStats* shard : stages_named(*stats, "Shard")) {
    sum.is_there = true;
    sum.so_far += shard->left_out;
    sum.every_pass += shard->leaves_out;
  }
  return sum;
}

InferenceRunner::InferenceRunner(InferenceInput input, OwnedList<Inferencer> inferencers,
                                 InferenceRunnerOptions options)
    : input_(std::move(input)), inferencers_(std::move(inferencers)), options_(std::move(options)) {
  TP_CHECK(!inferencers_.empty(), "InferenceRunner",
           "there is no inferencer. Pass at least one, such as ScalarStats({{\"cost\"}}).");
  input_.check_ends();
  set_chief_only(!options_.on_all_processes);
}

InferenceRunner::InferenceRunner(InferenceRunner&&) noexcept = default;
InferenceRunner& InferenceRunner::operator=(InferenceRunner&&) noexcept = default;
InferenceRunner::~InferenceRunner() = default;

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
  check_shares();
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
      check_batch(towers_[0].op().inputs(), first->components());
    } catch (...) {
      rethrow_with(fmt::format("in the first datapoint for '{}'", towers_[0].name()));
    }
  }
  input_.stop();
}

// Of several processes: whether what this one sees is what it is to see.
void InferenceRunner::check_shares() const {
  if (trainer().processes() == nullptr) return;
  const InferenceInput::ByShard left_out = input_.left_out_by_shard();
  if (options_.on_all_processes) {
    check_nothing_left_out(left_out.every_pass, towers_[0].name());
  } else if (left_out.is_there) {
    logging::warning(
        "[InferenceRunner] the chief alone validates, and shard() gives it a part of the data of "
        "'{}'. Leave shard() out, or set .on_all_processes and write shard({{.equal = false}}).",
        towers_[0].name());
  }
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
    if (!run_pass_on_all(*trainer().processes())) return;
  } else {
    const GiveUpScope give_up{PatienceAfterSignal(kPatience)};
    warn_if_empty(run_pass([&](const Fetched& fetched) { hand_out(fetched); }), towers_[0].name());
  }
  for (Inferencer& inferencer : inferencers_) {
    for (const auto& [name, value] : inferencer.after_inference()) {
      trainer().monitors().put_scalar(name, value);
    }
  }
}

// Hands what was fetched for every datapoint to `take`, and returns how many there were.
int64_t InferenceRunner::run_pass(const Take& take) {
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
  if (const int64_t left_out = input_.left_out() - left_out_before; left_out > 0) {
    logging::warning_once(
        "[InferenceRunner] the data of '{}' ended with {} that made no whole batch: left out. Keep "
        "everything with {{.remainder = true}}.",
        towers_[0].name(), counted(left_out, "datapoint"));
  }
  return meter.done();
}

void InferenceRunner::run_on_one(ProgressMeter& meter, const Take& take) {
  // Read one run late, so that a device has the next one to do meanwhile.
  struct Unread {
    FetchedValues values;
    int64_t samples;
  };
  std::optional<Unread> unread;
  const auto read = [&] {
    if (unread) take({unread->values.get(), unread->samples});
  };
  while (const std::optional<DataPoint> datapoint = input_.next()) {
    FetchedValues values = trainer().sess().run(towers_[0].op(), fetches_, feeds(*datapoint));
    read();
    unread = Unread{std::move(values), samples_of(*datapoint)};
    meter.advance();
  }
  read();
}

// A datapoint for each tower at a time, and at the end of the data as many as are left.
void InferenceRunner::run_on_several(ProgressMeter& meter, const Take& take) {
  while (true) {
    std::vector<Feeds> round;
    std::vector<Fetched> results;
    detail::HeldDatapoints held;
    while (round.size() < towers_.size()) {
      const std::optional<DataPoint> datapoint = input_.next();
      if (!datapoint) break;
      round.push_back(feeds(*datapoint));
      results.push_back({{}, samples_of(*datapoint)});
      held.add(datapoint->components());
    }
    if (round.empty()) return;
    held.check("InferenceRunner");
    const auto failure = team_->run([&](size_t i) {
      if (i < round.size())
        results[i].values = sessions_[i]->run(towers_[i].op(), fetches_, round[i]).get();
    });
    if (failure) std::rethrow_exception(failure->exception);
    for (Fetched& fetched : results) {
      take(std::move(fetched));
      meter.advance();
    }
  }
}

// What this process has to tell the others, or an empty text where a signal to save and end cut the
// pass short.
std::string InferenceRunner::run_own_part(ProcessGroup& processes) {
  const int64_t left_out_before = input_.left_out_by_shard().so_far;
  c10::List<std::vector<at::Tensor>> values;
  c10::List<int64_t> samples;
  SharedPatience patience(processes);
  const GiveUpScope give_up([&] { return patience.signal_when_over(); });
  try {
    run_pass([&](Fetched fetched) {
      values.push_back(std::move(fetched.values));
      samples.push_back(fetched.samples);
    });
  } catch (const Interrupted& interrupted) {
    if (interrupted.signal() == SIGINT) throw;
    logging::warning("InferenceRunner did not finish: {}.", interrupted.what());
    return "";
  }
  check_nothing_left_out(input_.left_out_by_shard().so_far - left_out_before, towers_[0].name());
  const std::vector<char> bytes =
      torch::jit::pickle_save(c10::ivalue::Tuple::create(values, samples));
  return std::string(bytes.begin(), bytes.end());
}

// False if one of them was cut short. Then all go on, to what saves, and there are no results.
bool InferenceRunner::run_pass_on_all(ProcessGroup& processes) {
  const std::vector<std::string> texts = processes.all_gather(run_own_part(processes));
  if (std::find(texts.begin(), texts.end(), "") != texts.end()) return false;
  int64_t datapoints = 0;  // a process may have none
  for (const std::string& text : texts) {
    const c10::IValue all = torch::jit::pickle_load(std::vector<char>(text.begin(), text.end()));
    const auto& parts = all.toTupleRef().elements();
    const std::vector<int64_t> counts = parts[1].toIntVector();
    for (size_t i = 0; i < counts.size(); ++i) {
      hand_out({parts[0].toListRef()[i].toTensorVector(), counts[i]});
    }
    datapoints += std::ssize(counts);
  }
  warn_if_empty(datapoints, towers_[0].name());
  return true;
}

void InferenceRunner::hand_out(const Fetched& fetched) {
  for (size_t i = 0; i < inferencers_.size(); ++i) {
    std::vector<at::Tensor> own;
    for (size_t index : indices_[i]) own.push_back(fetched.values[index]);
    inferencers_[i].take(own, fetched.samples);
  }
}

int64_t InferenceRunner::samples_of(const DataPoint& datapoint) const {
  if (options_.count_samples) {
    const int64_t samples = options_.count_samples(datapoint);
    TP_CHECK(samples >= 0, "InferenceRunner",
             ".count_samples says that a datapoint has {} samples. Return 0 or more.", samples);
    return samples;
  }
  const std::vector<TensorSpec>& inputs = towers_[0].op().inputs();
  const std::vector<at::Tensor> placed = place_batch(inputs, datapoint.components());
  const std::optional<int64_t> samples = samples_of_inputs(inputs, placed);
  if (!samples) {
    logging::warning_once(
        "[InferenceRunner] the inputs of '{}' differ in their first dimension, {}: each datapoint "
        "counts as one sample. Say how many there are by .count_samples.",
        towers_[0].name(), describe_sizes(inputs, placed));
  }
  return samples.value_or(1);
}

Feeds InferenceRunner::feeds(const DataPoint& datapoint) const {
  const std::vector<TensorSpec>& inputs = towers_[0].op().inputs();
  const std::vector<at::Tensor> placed = place_batch(inputs, datapoint.components());
  Feeds feeds;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (placed[i].defined() || !inputs[i].default_value) feeds.emplace(inputs[i].name, placed[i]);
  }
  return feeds;
}

}  // namespace tensorpack
