// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/detail/awaited_scalar.h"

#include <algorithm>
#include <set>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::string nearest_names(TrainerBase& trainer, const std::string& name) {
  const std::vector<std::string> expected = trainer.reported_scalars().names;
  std::set<std::string> known(expected.begin(), expected.end());
  known.merge(trainer.monitors().names());
  known.erase(name);
  return did_you_mean(name, {known.begin(), known.end()});
}

bool is_announced(TrainerBase& trainer, const std::string& name) {
  const std::vector<std::string> names = trainer.reported_scalars().names;
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

// In other processes than the chief, callbacks that report are missing.
void AwaitedScalar::check_before(TrainerBase& trainer) {
  was_missing_ = false;
  const ReportedScalars reported = trainer.reported_scalars();
  if (!reported.are_all || !trainer.is_chief() || trainer.monitors().contains(name_)) return;
  TP_CHECK(is_announced(trainer, name_), owner_, "no callback reports the scalar '{}'. {}", name_,
           nearest_names(trainer, name_));
}

bool AwaitedScalar::is_there(TrainerBase& trainer, const std::string& consequence) {
  if (trainer.monitors().contains(name_)) return true;
  was_missing_ = true;
  const std::string advice = is_announced(trainer, name_)
                                 ? "A callback that did not run yet reports it."
                                 : nearest_names(trainer, name_);
  logging::warning("[{}] '{}' was not reported yet{}. {}", owner_, name_, consequence, advice);
  return false;
}

// The callback that reports it may have a longer period than the training had epochs, or the
// training may have ended early.
void AwaitedScalar::check_after(TrainerBase& trainer) const {
  const bool is_whole = trainer.epoch_num() >= trainer.max_epoch();
  if (!was_missing_ || !is_whole || is_announced(trainer, name_)) return;
  TP_CHECK(trainer.monitors().contains(name_), owner_,
           "the scalar '{}' was never reported in this training. {}", name_,
           nearest_names(trainer, name_));
}

}  // namespace tensorpack
