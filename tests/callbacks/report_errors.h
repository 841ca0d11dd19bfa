// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/trainer_base.h"
#include "tensorpack/monitors/monitors.h"

namespace tensorpack {

/// Reports one value of "error" after each epoch.
inline CallbackFactory report_errors(std::vector<double> values) {
  return CallbackFactory({.trigger = [values = std::move(values)](Callback& self) {
    const double value = values.at(static_cast<size_t>(self.epoch_num() - 1));
    self.trainer().monitors().put_scalar("error", value);
  }});
}

}  // namespace tensorpack
