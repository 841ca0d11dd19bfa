// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/error_counter.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"

namespace tensorpack::detail {

void ErrorCounter::count(const std::string& what) {
  try {
    throw;
  } catch (const StopTraining&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    constexpr int64_t kAll = 9;
    constexpr int64_t kEvery = 100;
    const int64_t total = total_.fetch_add(1, std::memory_order_relaxed) + 1;
    if (total <= kAll || total % kEvery == 0) {
      logging::warning("[{}] {} was left out, {} so far: {}", stage_, what, total, describe(error));
    }
  }
}

}  // namespace tensorpack::detail
