// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/monitors.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

Monitors::Monitors(OwnedList<MonitorBase> monitors, const LoopState& loop)
    : monitors_(std::move(monitors)), loop_(loop) {}

void Monitors::put_scalar(const std::string& name, double value) {
  history_[name].emplace_back(loop_.global_step, value);
  for (MonitorBase& monitor : monitors_) monitor.process_scalar(name, value, loop_);
}

void Monitors::put_image(const std::string& name, const at::Tensor& image) {
  TP_CHECK(image.dim() >= 2 && image.dim() <= 4, "put_image",
           "'{}' has {} dimensions. Give [H, W], [H, W, C] or [N, H, W, C].", name, image.dim());
  for (MonitorBase& monitor : monitors_) monitor.process_image(name, image, loop_);
}

double Monitors::get_latest(const std::string& name) const {
  return get_history(name).back().second;
}

const std::vector<std::pair<int64_t, double>>& Monitors::get_history(
    const std::string& name) const {
  auto found = history_.find(name);
  if (found != history_.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& entry : history_) known.push_back(entry.first);
  throw make_error("monitors", "no scalar named '{}' has been reported yet. {}", name,
                   did_you_mean(name, known));
}

void Monitors::claim(const std::string& name, const std::string& owner) {
  const auto [found, is_new] = owners_.emplace(name, owner);
  TP_CHECK(is_new, owner,
           "the scalar '{}' is reported by {} already: one would overwrite the other. Give one of "
           "them another prefix or name.",
           name, found->second);
}

}  // namespace tensorpack
