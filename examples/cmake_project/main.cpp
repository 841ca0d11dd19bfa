// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <torch/types.h>

#include "tensorpack/utils/error.h"

int main() {
  try {
    auto sum = torch::ones({2, 3}).sum().item<double>();
    TP_CHECK(sum < 6, "consumer", "the sum is {}. This message is what the program is for.", sum);
  } catch (const tensorpack::Error& error) {
    fmt::print("{}\n", error.what());
    return 0;
  }
  return 1;
}
