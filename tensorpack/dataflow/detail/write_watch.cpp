// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/write_watch.h"

#include "tensorpack/utils/logger.h"

namespace tensorpack::detail {

void WriteWatch::warn(const char* flow) {
  log::warning_once(
      "[{}] its tensors were changed in place during the pass, and the next one begins with what "
      "they are now. If a function behind it does that, have it make new ones: p[0] = p[0] / 255, "
      "not p[0].div_(255).",
      flow);
}

}  // namespace tensorpack::detail
