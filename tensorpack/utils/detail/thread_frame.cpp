// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/detail/thread_frame.h"

#include <atomic>

namespace tensorpack {

ThreadFrame& ThreadFrame::current() {
  thread_local ThreadFrame frame;
  return frame;
}

size_t ThreadFrame::new_index() {
  static std::atomic<size_t> count{0};
  return count++;
}

}  // namespace tensorpack
