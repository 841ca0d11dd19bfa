// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/step_counter.h"

#include "tensorpack/utils/logger.h"

namespace tensorpack {

void MaintainStepCounter::before_train() {
  counter_ = graph().global_step().tensor.data_ptr<int64_t>();
  {
    const auto lock = graph().lock_variables();
    trainer().set_global_step(*counter_);
  }
  if (global_step() != 0) logging::info("Start training with global_step = {}.", global_step());
}

}  // namespace tensorpack
