// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/stop_at_nan.h"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

RunArgs StopAtNaN::before_run(RunContext& context) {
  const auto& outputs = context.op().outputs();
  const auto found = outputs.find(options_.tensor);
  if (is_told_ || found == outputs.end() || !found->second.shape.empty()) return {};
  return {.fetches = {options_.tensor}};
}

void StopAtNaN::after_run(RunContext&, const FetchedValues& values) {
  // The step counter, which comes first, has counted this run.
  if (values.empty()) return;
  look();
  unread_ = Seen{values, global_step()};
  if (!graph().options().device.is_cuda()) look();
}

void StopAtNaN::look() {
  if (!unread_) return;
  const Seen seen = *std::exchange(unread_, std::nullopt);
  const double value = seen.values[0].item<double>();
  if (std::isfinite(value)) return;
  const Error error = make_error("StopAtNaN",
                                 "'{}' is {} at global_step {}. Usual causes: a learning rate that "
                                 "is too high, a logarithm or a "
                                 "division of zero, bad data. Checkpoints are from before.",
                                 options_.tensor, value, seen.step);
  if (options_.stops) throw error;
  log::error("{}", error.what());
  is_told_ = true;
}

}  // namespace tensorpack
