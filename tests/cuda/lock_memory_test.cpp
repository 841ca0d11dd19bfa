// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "tensorpack/graph/detail/saved_state.h"
#include "tensorpack/graph/locked_memory.h"
#include "tests/cuda/device.h"

namespace tensorpack::cuda {
namespace {

class LockMemoryTest : public test::CudaTest {};

TEST_F(LockMemoryTest, GivesWhatTheDeviceReadsAndWritesByItself) {
  const int64_t bytes = (int64_t{5} << 20) + 3;
  at::Tensor memory = lock_memory(bytes);
  ASSERT_EQ(memory.numel(), bytes);
  EXPECT_TRUE(memory.is_pinned());
  const at::Tensor values =
      at::randint(256, {bytes}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  memory.copy_(values);
  EXPECT_TRUE(at::equal(memory, values.cpu()));
  EXPECT_TRUE(at::equal(memory.to(at::kCUDA), values));
}

TEST_F(LockMemoryTest, MoreThanThereIsIsNone) {
  EXPECT_FALSE(lock_memory(int64_t{1} << 60).defined());
  EXPECT_EQ(at::ones({1}, at::kCUDA).item<float>(), 1) << "an error is left behind";
}

// A copy on its way would find pages that are gone, or somebody else's.
TEST_F(LockMemoryTest, WhatIsRestoredDoesNotNeedItsCopyAnyMore) {
  constexpr int kTensors = 8;
  constexpr int64_t kBytes = int64_t{1} << 27;
  std::vector<at::Tensor> tensors, expected;
  for (int i = 0; i < kTensors; ++i) {
    expected.push_back(at::randn({kBytes / 4}, at::kCUDA));
    tensors.push_back(expected.back().clone());
  }
  for (int round = 0; round < 5; ++round) {
    {
      SavedState state;
      for (const at::Tensor& tensor : tensors) state.save(tensor);
      for (const at::Tensor& tensor : tensors) tensor.zero_();
      state.restore();
    }
    const at::Tensor others = lock_memory(kBytes);  // of zeros
    for (int i = 0; i < kTensors; ++i) EXPECT_TRUE(at::equal(tensors[i], expected[i]));
  }
}

// Pages that a child has, too, are copied for whoever writes next, and the device would be left
// with the old ones.
TEST_F(LockMemoryTest, IsNoPartOfAChild) {
  const at::Tensor memory = lock_memory(int64_t{2} << 20);
  const pid_t child = fork();
  if (child == 0) {
    unsigned char is_resident = 0;
    _exit(mincore(memory.data_ptr(), 1, &is_resident) == -1 && errno == ENOMEM ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tensorpack::cuda
