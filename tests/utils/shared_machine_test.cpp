// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/shared_machine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <optional>

#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

TEST(SharedMachineTest, ThreadsWaitPassivelyWhileCoresAreFoughtFor) {
  using detail::should_wait_passively;
  EXPECT_FALSE(should_wait_passively(0.02, /*is_passive=*/false));
  EXPECT_FALSE(should_wait_passively(0.1, /*is_passive=*/false)) << "a quiet machine loses nothing";
  EXPECT_TRUE(should_wait_passively(0.5, /*is_passive=*/false));
  EXPECT_TRUE(should_wait_passively(0.1, /*is_passive=*/true)) << "not to and fro";
  EXPECT_FALSE(should_wait_passively(0.02, /*is_passive=*/true));
}

TEST(SharedMachineTest, PassiveWaitingChangesNoBit) {
  const OpThreadsScope threads(2);
  const at::Tensor x = at::sin(at::arange(300'000, at::kFloat));
  const at::Tensor spinning = x.sum();
  std::optional<PassiveWaiting> passive;
  for (int i = 0; i < 3; ++i) {
    passive.emplace();
    EXPECT_TRUE(at::equal(x.sum(), spinning));
    passive.reset();
    EXPECT_TRUE(at::equal(x.sum(), spinning));
  }
}

}  // namespace
}  // namespace tensorpack
