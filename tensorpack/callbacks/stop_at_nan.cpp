// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/stop_at_nan.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "tensorpack/callbacks/watched_scalars.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

void StopAtNaN::before_train() {
  watched_ = watched_scalars(trainer(), options_.tensor, "StopAtNaN");
}

RunArgs StopAtNaN::before_run(RunContext& context) {
  if (is_told_) return {};
  fetched_ = scalars_of(context.op(), watched_);
  return {.fetches = fetched_};
}

void StopAtNaN::after_run(RunContext&, const FetchedValues& values) {
  // The step counter, which comes first, has counted this run.
  if (values.empty()) return;
  look();
  unread_ = Seen{fetched_, values, global_step()};
  if (!graph().options().device.is_cuda()) look();
}

void StopAtNaN::look() {
  if (!unread_) return;
  const Seen seen = *std::exchange(unread_, std::nullopt);
  for (size_t i = 0; i < seen.names.size(); ++i) {
    const double value = seen.values[i].item<double>();
    if (std::isfinite(value)) continue;
    const Error error = make_error("StopAtNaN",
                                   "'{}' is {} at global_step {}. Usual causes: a learning rate "
                                   "that is too high, a logarithm or a "
                                   "division of zero, bad data. Checkpoints are from before.",
                                   seen.names[i], value, seen.step);
    if (options_.stops) throw error;
    logging::error("{}", error.what());
    is_told_ = true;
    return;
  }
}

}  // namespace tensorpack
