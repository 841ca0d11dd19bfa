// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/share_work.h"

#include <ATen/Parallel.h>

#include <atomic>

namespace tensorpack {

void share_work(size_t count, const std::function<void(size_t)>& work) {
  std::atomic<size_t> next = 0;
  at::parallel_for(0, at::get_num_threads(), 1, [&](int64_t, int64_t) {
    for (size_t i = next++; i < count; i = next++) work(i);
  });
}

}  // namespace tensorpack
