// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/kernel_settings.h"

#include <ATen/Context.h>
#include <gmock/gmock.h>

#include "tests/support/throws.h"

namespace tensorpack {
namespace {

TEST(KernelSettingsTest, WhatWasSetBeforeComesBackWithTheLastHolder) {
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(false);
  context.setBenchmarkCuDNN(false);
  {
    auto first = std::make_unique<HoldKernelSettings>(KernelSettings{.tf32 = true});
    const HoldKernelSettings second({.tf32 = true});
    first.reset();
    EXPECT_TRUE(context.allowTF32CuBLAS());
    EXPECT_TRUE(context.benchmarkCuDNN());
  }
  EXPECT_FALSE(context.allowTF32CuBLAS());
  EXPECT_FALSE(context.benchmarkCuDNN());
}

TEST(KernelSettingsTest, TwoThatDisagreeAreAnError) {
  const HoldKernelSettings first({.tf32 = true});
  EXPECT_ERROR(HoldKernelSettings({.deterministic = true}),
               "another session on CUDA has tf32 on, deterministic kernels off and 10 candidates "
               "of cuDNN, this one asks for off, on and 10.");
  EXPECT_TRUE(at::globalContext().allowTF32CuBLAS()) << "and nothing has changed";
}

TEST(KernelSettingsTest, SoManyKernelsOfCudnnAreTriedAsAsked) {
  at::Context& context = at::globalContext();
  const int before = context.benchmarkLimitCuDNN();
  {
    const HoldKernelSettings all({.cudnn_candidates = 0});
    EXPECT_EQ(context.benchmarkLimitCuDNN(), 0);
  }
  EXPECT_EQ(context.benchmarkLimitCuDNN(), before);
  {
    const HoldKernelSettings first_choice({.cudnn_candidates = 1});
    EXPECT_FALSE(context.benchmarkCuDNN()) << "there is nothing to compare it with";
  }
  EXPECT_ERROR(HoldKernelSettings({.cudnn_candidates = -1}), "cudnn_candidates is -1");
}

}  // namespace
}  // namespace tensorpack
