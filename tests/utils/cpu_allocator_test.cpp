// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/cpu_allocator.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

namespace tensorpack {
namespace {

class CpuAllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
    detail::install_caching_cpu_allocator();
    const int64_t before = cpu_memory_stats().bytes_in_use;
    const at::Tensor probe = at::empty({1 << 20});
    if (cpu_memory_stats().bytes_in_use == before) GTEST_SKIP() << "not installed in this build";
  }
};

TEST_F(CpuAllocatorTest, FreedBlocksAreUsedAgain) {
  void* first = at::empty({100000}).data_ptr();
  EXPECT_EQ(at::empty({100000}).data_ptr(), first);
  EXPECT_EQ(at::empty({99999}).data_ptr(), first);  // the same size class
}

TEST_F(CpuAllocatorTest, CountsBytesInUseAndPeak) {
  const int64_t before = cpu_memory_stats().bytes_in_use;
  reset_peak_cpu_memory();
  {
    const at::Tensor a = at::empty({1 << 20});
    EXPECT_GE(cpu_memory_stats().bytes_in_use, before + (4 << 20));
    EXPECT_LE(cpu_memory_stats().bytes_in_use, before + (5 << 20));
  }
  EXPECT_EQ(cpu_memory_stats().bytes_in_use, before);
  EXPECT_GE(cpu_memory_stats().peak_bytes_in_use, before + (4 << 20));
}

TEST_F(CpuAllocatorTest, TheCacheCanBeEmptied) {
  at::empty({1 << 20});
  EXPECT_GT(cpu_memory_stats().bytes_cached, 0);
  empty_cpu_cache();
  EXPECT_EQ(cpu_memory_stats().bytes_cached, 0);
  EXPECT_EQ(at::ones({1000}).sum().item<float>(), 1000);
}

TEST_F(CpuAllocatorTest, BlocksAreAlignedAndWhole) {
  for (int64_t size : {1, 63, 64, 65, 1000, 4095, 4096, 4097, 1000000}) {
    at::Tensor a = at::empty({size}, at::kByte);
    at::Tensor b = at::empty({size}, at::kByte);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data_ptr()) % 64, 0U);
    a.fill_(1);
    b.fill_(2);
    EXPECT_EQ(a.sum().item<int64_t>(), size);
    EXPECT_EQ(b.sum().item<int64_t>(), 2 * size);
  }
}

TEST_F(CpuAllocatorTest, EmptyTensorsNeedNoMemory) { EXPECT_EQ(at::empty({0}).numel(), 0); }

}  // namespace
}  // namespace tensorpack
