// SPDX-License-Identifier: Apache-2.0
// Ordinary memory stands for page-locked memory.
#include "tensorpack/graph/host_copy.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tensorpack/utils/host_memory.h"

namespace tensorpack {
namespace {

constexpr int64_t kChunk = 1024;

// Counts what is locked, and what of it is still there.
class CountedMemory {
 public:
  explicit CountedMemory(int64_t most_bytes = 100 * kChunk)
      : memory_({.lock = [this](int64_t bytes) { return lock(bytes); },
                 .chunk_bytes = kChunk,
                 .most_bytes = most_bytes}) {}

  LockedMemory& operator*() { return memory_; }
  LockedMemory* operator->() { return &memory_; }
  void run_out() { is_used_up_ = true; }
  int asked() const { return asked_; }
  int in_use() const { return in_use_; }
  void wait_until_asked(int count) const {
    while (asked_ < count) std::this_thread::yield();
  }

 private:
  at::Tensor lock(int64_t bytes) {
    ++asked_;
    if (is_used_up_) return {};
    ++in_use_;
    auto* data = new char[bytes];
    return at::from_blob(
        data, {bytes},
        [this](void* memory) {
          delete[] static_cast<char*>(memory);
          --in_use_;
        },
        at::kByte);
  }

  std::atomic<bool> is_used_up_ = false;
  std::atomic<int> asked_ = 0;
  std::atomic<int> in_use_ = 0;
  LockedMemory memory_;
};

TEST(HostCopiesAheadTest, CopiesTakeWhatWasLockedAhead) {
  CountedMemory memory;
  const HostCopiesAhead ahead(*memory, 3 * kChunk - 1);
  memory.wait_until_asked(3);  // two are there then
  const std::vector<at::Tensor> copies = {memory->take(kChunk), memory->take(kChunk)};
  EXPECT_EQ(memory.asked(), 3);
}

TEST(HostCopiesAheadTest, LocksMoreWhenMoreIsWanted) {
  CountedMemory memory;
  {
    const HostCopiesAhead ahead(*memory, kChunk);
    memory.wait_until_asked(1);
    HostCopiesAhead::want(2 * kChunk);
    memory.wait_until_asked(3);
  }
  HostCopiesAhead::want(kChunk);  // there is none any more
  EXPECT_EQ(memory.asked(), 3);
}

TEST(HostCopiesAheadTest, WhatNoCopyTookIsGivenBack) {
  CountedMemory memory;
  at::Tensor copy;
  {
    const HostCopiesAhead ahead(*memory, 3 * kChunk);
    memory.wait_until_asked(3);
    copy = memory->take(100);
  }
  EXPECT_EQ(memory.in_use(), 1);
  copy.reset();
  EXPECT_EQ(memory.in_use(), 0);
}

TEST(HostCopiesAheadTest, WhatCopiesLetGoIsTakenAgainAndGivenBackInTheEnd) {
  CountedMemory memory;
  {
    const HostCopiesAhead outer(*memory, 0);
    {
      const HostCopiesAhead inner(*memory, 0);
      for (int i = 0; i < 5; ++i) memory->take(kChunk).fill_(i);
    }
    for (int i = 0; i < 5; ++i) memory->take(kChunk).fill_(i);
    EXPECT_EQ(memory.asked(), 1);
    memory->take(kChunk + 1);  // of another size, which nobody may want again
    EXPECT_EQ(memory.asked(), 2);
    EXPECT_EQ(memory.in_use(), 1);
  }
  EXPECT_EQ(memory.in_use(), 0);
}

TEST(HostCopiesAheadTest, WhatIsKeptCountsAsLocked) {
  CountedMemory memory(2 * kChunk);
  const HostCopiesAhead ahead(*memory, 2 * kChunk);
  memory.wait_until_asked(2);
  EXPECT_FALSE(memory->take(kChunk + 1).defined());
}

TEST(HostCopiesAheadTest, LocksNoMoreThanIsAllowed) {
  CountedMemory memory(2 * kChunk);
  {
    const HostCopiesAhead ahead(*memory, 10 * kChunk);
    memory.wait_until_asked(2);
  }
  EXPECT_EQ(memory.asked(), 2);
}

TEST(HostCopiesAheadTest, AsksOnceWhereThereIsNone) {
  CountedMemory memory;
  memory.run_out();
  {
    const HostCopiesAhead ahead(*memory, 10 * kChunk);
    memory.wait_until_asked(1);
  }
  EXPECT_FALSE(memory->take(kChunk).defined());
  EXPECT_EQ(memory.asked(), 1);
}

TEST(HostCopiesAheadTest, EndsWithItsOwner) {
  CountedMemory memory(int64_t{1} << 60);
  { const HostCopiesAhead ahead(*memory, int64_t{1} << 60); }  // takes longer than anybody waits
  EXPECT_EQ(memory.in_use(), 0);
}

TEST(LockedMemoryTest, SmallTensorsShareAChunkThatLivesAsLongAsOneOfThem) {
  CountedMemory memory;
  at::Tensor first = memory->take(100);
  at::Tensor second = memory->take(100);
  EXPECT_EQ(memory.asked(), 1);
  first.fill_(1);
  second.fill_(2);
  EXPECT_TRUE(first.eq(1).all().item<bool>()) << "they overlap";
  first.reset();
  EXPECT_EQ(memory.in_use(), 1);
  second.reset();
  EXPECT_EQ(memory.in_use(), 0);
}

TEST(LockedMemoryTest, WhatWasLetGoMayBeLockedAgain) {
  CountedMemory memory(kChunk);
  at::Tensor copy = memory->take(kChunk);
  EXPECT_FALSE(memory->take(1).defined());
  copy.reset();
  EXPECT_TRUE(memory->take(1).defined());
}

TEST(LockedMemoryTest, OutlivesItsOwnerWithThoseWhoUseIt) {
  int in_use = 0;
  at::Tensor copy;
  {
    LockedMemory memory({.lock =
                             [&](int64_t bytes) {
                               ++in_use;
                               auto* data = new char[bytes];
                               return at::from_blob(
                                   data, {bytes},
                                   [&in_use](void* given) {
                                     delete[] static_cast<char*>(given);
                                     --in_use;
                                   },
                                   at::kByte);
                             },
                         .chunk_bytes = kChunk});
    copy = memory.take(10);
  }
  copy.fill_(1);
  copy.reset();
  EXPECT_EQ(in_use, 0);
}

TEST(LockedMemoryTest, ASixteenthOfTheHostMayBeLockedWithinBounds) {
  constexpr int64_t kGiB = int64_t{1} << 30, kLeast = 5 * kGiB / 2;
  const auto share = static_cast<int64_t>(host_memory() / 16);
  EXPECT_EQ(most_locked_memory(), std::max(kLeast, std::min(8 * kGiB, share)));
}

TEST(HostCopyTest, OfATensorOnTheCpuIsAnOrdinaryOne) {
  const HostCopiesAhead ahead(at::kCPU, int64_t{1} << 60);
  const at::Tensor tensor = at::rand({3, 4}).t();
  const at::Tensor copy = host_copy(tensor);
  EXPECT_TRUE(at::equal(copy, tensor));
  EXPECT_FALSE(copy.is_alias_of(tensor));
}

}  // namespace
}  // namespace tensorpack
