// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

#include "benchmarks/groups.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::bench {

void add_utils_benchmarks(Suite& suite) {
  // A check that holds must cost as little as libtorch's: it stands in every layer and every step.
  suite.add("utils/passing_check", [](const Stopwatch& watch) {
    volatile int size = 1;  // volatile: the compiler may not decide the check ahead
    constexpr int kChecks = 1000;
    return watch.compare({
        .ours =
            [&] {
              for (int i = 0; i < kChecks; ++i) {
                TP_CHECK(size > 0, "bench", "the size must be positive, got {}.", int{size});
              }
            },
        .peer =
            [&] {
              for (int i = 0; i < kChecks; ++i) {
                TORCH_CHECK(size > 0, "the size must be positive, got ", int{size});
              }
            },
        .peer_name = "TORCH_CHECK",
        .min_seconds = 0.05,
    });
  });
}

}  // namespace tensorpack::bench
