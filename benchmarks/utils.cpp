// SPDX-License-Identifier: Apache-2.0
#include <chrono>

#include "benchmarks/groups.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::bench {

void add_utils_benchmarks(Suite& suite) {
  // A check that holds stands in every layer and every step: it must cost next to nothing.
  suite.add("utils/passing_check", [](const Stopwatch& watch) {
    return watch.measure({
        // Timed here as a whole: the call of a step would cost more than the check.
        .step =
            [](int64_t steps) {
              volatile int size = 1;  // volatile: the compiler may not decide the check ahead
              auto start = std::chrono::steady_clock::now();
              for (int64_t i = 0; i < steps; ++i) {
                TP_CHECK(size > 0, "bench", "the size must be positive, got {}.", int{size});
              }
              return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
                  .count();
            },
        .min_seconds = 0.05,
    });
  });
}

}  // namespace tensorpack::bench
