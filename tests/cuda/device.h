// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <torch/cuda.h>

namespace tensorpack::test {

/// Skips where there is no GPU.
class CudaTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  }
};

}  // namespace tensorpack::test
