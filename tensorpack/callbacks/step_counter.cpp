// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/step_counter.h"

#include "tensorpack/utils/logger.h"

namespace tensorpack {

void MaintainStepCounter::before_train() {
  counter_ = graph().global_step().tensor.data_ptr<int64_t>();
  trainer().set_global_step(*counter_);
  if (*counter_ != 0) log::info("Start training with global_step = {}.", *counter_);
}

}  // namespace tensorpack
