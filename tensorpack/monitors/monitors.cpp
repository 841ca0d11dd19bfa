// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/monitors.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

struct Monitors::History {
  std::map<std::string, std::vector<std::pair<int64_t, double>>> of_name;
};

Monitors::Monitors(OwnedList<MonitorBase> monitors, const LoopState& loop, int rank)
    : monitors_(std::move(monitors)),
      loop_(loop),
      rank_(rank),
      history_(std::make_unique<History>()) {}

Monitors::~Monitors() = default;

void Monitors::put_scalar(const std::string& name, double value) {
  auto& history = history_->of_name[name];
  if (!history.empty() && history.back().first == loop_.global_step) {
    if (history.back().second == value) return;
    history.pop_back();
  }
  history.emplace_back(loop_.global_step, value);
  for (MonitorBase& monitor : monitors_) monitor.process_scalar(name, value, loop_);
}

void Monitors::put_image(const std::string& name, const Image& image) {
  for (MonitorBase& monitor : monitors_) monitor.process_image(name, image, loop_);
}

void Monitors::put_image(const std::string& name, const at::Tensor& pixels, ImageLayout layout) {
  const std::vector<Image> images = [&] {
    try {
      return to_images(pixels, layout);
    } catch (const Error& error) {
      throw make_error("put_image", "'{}': {}", name, error.what());
    }
  }();
  for (size_t i = 0; i < images.size(); ++i) {
    put_image(images.size() == 1 ? name : name + "/" + std::to_string(i), images[i]);
  }
}

void Monitors::put_histogram(const std::string& name, const Histogram& histogram) {
  for (MonitorBase& monitor : monitors_) monitor.process_histogram(name, histogram, loop_);
}

void Monitors::put_histogram(const std::string& name, const at::Tensor& values) {
  put_histogram(name, make_histogram(values));
}

void Monitors::put_text(const std::string& name, const std::string& text) {
  for (MonitorBase& monitor : monitors_) monitor.process_text(name, text, loop_);
}

void Monitors::put_hyper_params(const HyperParams& params) {
  for (const auto& [name, value] : params) hyper_params_[name] = value;
  for (MonitorBase& monitor : monitors_) monitor.process_hyper_params(hyper_params_, loop_);
}

bool Monitors::wants_graph() const {
  for (const MonitorBase& monitor : monitors_) {
    if (monitor.wants_graph()) return true;
  }
  return false;
}

void Monitors::put_graph(const Trace& trace) {
  for (MonitorBase& monitor : monitors_) {
    if (monitor.wants_graph()) monitor.process_graph(trace, loop_);
  }
}

void Monitors::put_setup(const RunSetup& setup) {
  for (MonitorBase& monitor : monitors_) monitor.process_setup(setup, loop_);
}

void Monitors::put_profile(const std::vector<LayerTime>& layers) {
  for (MonitorBase& monitor : monitors_) monitor.process_profile(layers, loop_);
}

void Monitors::put_stages(const std::vector<StageReport>& stages) {
  for (MonitorBase& monitor : monitors_) monitor.process_stages(stages, loop_);
}

double Monitors::get_latest(const std::string& name) const {
  return get_history(name).back().second;
}

const std::vector<std::pair<int64_t, double>>& Monitors::get_history(
    const std::string& name) const {
  auto found = history_->of_name.find(name);
  if (found != history_->of_name.end()) return found->second;
  if (rank_ != 0) {
    throw make_error(
        "monitors",
        "no scalar named '{}' has been reported in rank {}: callbacks such as InferenceRunner "
        "report in the chief process alone. Decide there and have all ranks take the value, as "
        "HyperParamSetterWithFunc does with {{.decided_by_chief = true}}. {}",
        name, rank_, nearest_names(name));
  }
  throw make_error("monitors", "no scalar named '{}' has been reported yet. {}", name,
                   nearest_names(name));
}

bool Monitors::contains(const std::string& name) const { return history_->of_name.contains(name); }

std::set<std::string> Monitors::names() const {
  std::set<std::string> names;
  for (const auto& entry : history_->of_name) names.insert(entry.first);
  return names;
}

std::string Monitors::nearest_names(const std::string& name) const {
  const std::set<std::string> known = names();
  return did_you_mean(name, {known.begin(), known.end()});
}

void Monitors::claim(const std::string& name, const std::string& owner) {
  const auto [found, is_new] = owners_.emplace(name, owner);
  TP_CHECK(is_new, owner,
           "the scalar '{}' is reported by {} already: one would overwrite the other. Give one of "
           "them another prefix or name.",
           name, found->second);
}

}  // namespace tensorpack
