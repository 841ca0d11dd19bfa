// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/progress_bar.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tensorpack/callbacks/fetch_spec.h"
#include "tensorpack/callbacks/watched_scalars.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/progress_meter.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

ProgressBar::ProgressBar(std::vector<std::string> names) : names_(std::move(names)) {
  set_chief_only(false);
}

ProgressBar::ProgressBar(ProgressBar&&) noexcept = default;
ProgressBar& ProgressBar::operator=(ProgressBar&&) noexcept = default;
ProgressBar::~ProgressBar() = default;

void ProgressBar::before_train() {
  const Op& op = trainer().train_op();
  shown_ = names_;
  if (names_.empty() && op) shown_ = scalars_of(op, trainer().cost_names());
  if (!op) return;  // the trainer has its own run_step(): the first run checks
  for (const std::string& name : shown_) {
    const TensorSpec spec = fetch_spec(graph(), op, name, "ProgressBar");
    TP_CHECK(spec.shape.empty(), "ProgressBar",
             "'{}' is not a scalar: its shape is [{}]. Name its mean in the model and show that.",
             name, fmt::join(spec.shape, ", "));
  }
}

void ProgressBar::before_epoch() {
  if (!trainer().is_chief()) return;  // one bar is enough
  meter_ =
      std::make_unique<ProgressMeter>(ProgressMeterOptions{.total = trainer().steps_per_epoch()});
  is_first_run_ = true;
}

RunArgs ProgressBar::before_run(RunContext& context) {
  const Op& op = trainer().train_op();
  if (op && context.op() != op) return {};  // another op need not have these tensors
  if (!op && names_.empty()) shown_ = scalars_of(context.op(), trainer().cost_names());
  if (shown_.empty() || !meter_ || !std::exchange(is_first_run_, false)) return {};
  // A value that is fetched must be computed and waited for, so steps that nobody sees go without.
  const LoopState& loop = trainer().loop();
  if (!meter_->is_due() && loop.local_step > 0 && !loop.is_last_step_of_epoch()) return {};
  return {.fetches = shown_};
}

void ProgressBar::after_run(RunContext&, const FetchedValues& values) {
  if (values.empty()) return;
  std::vector<std::string> texts;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string leaf = shown_[i].substr(shown_[i].rfind('/') + 1);
    texts.push_back(fmt::format("{}={:.3g}", leaf, values[i].item<double>()));
  }
  meter_->set_postfix(join(texts));
}

void ProgressBar::trigger_step() {
  is_first_run_ = true;
  if (meter_) meter_->advance();
}

void ProgressBar::after_epoch() { meter_.reset(); }

void ProgressBar::after_train() { meter_.reset(); }

}  // namespace tensorpack
