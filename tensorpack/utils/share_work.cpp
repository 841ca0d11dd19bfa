// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/share_work.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "tensorpack/utils/worker_team.h"

namespace tensorpack {

void share_work(size_t count, size_t max_threads, const std::function<void(size_t)>& work) {
  const auto allowed = static_cast<size_t>(std::max(1, at::get_num_threads()));
  const size_t threads = std::max<size_t>(1, std::min({count, max_threads, allowed}));
  std::atomic<size_t> next = 0;
  WorkerTeam team("share_work", threads);
  const auto failure = team.run([&](size_t) {
    for (size_t i = next++; i < count; i = next++) work(i);
  });
  if (failure) std::rethrow_exception(failure->exception);
}

}  // namespace tensorpack
