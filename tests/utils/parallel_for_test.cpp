// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/parallel_for.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

TEST(ParallelForTest, EveryNumberIsInOneRange) {
  for (const int threads : {1, 2, 5}) {
    OpThreadsScope scope(threads);
    for (const int64_t count : {0, 1, 2, 3, 7, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      parallel_for(count, [&](int64_t begin, int64_t end) {
        EXPECT_LT(begin, end);
        for (int64_t i = begin; i < end; ++i) ++seen[i];
      });
      for (const auto& times : seen) EXPECT_EQ(times, 1) << count << " on " << threads;
    }
  }
}

// Each range waits for all others, which hangs if two of them follow each other.
TEST(ParallelForTest, RangesRunAtTheSameTimeOnThreadsOfTheirOwn) {
  for (const int threads : {2, 5}) {
    OpThreadsScope scope(threads);
    std::barrier all(threads);
    std::mutex mutex;
    std::set<std::thread::id> ids;
    parallel_for(1000, [&](int64_t, int64_t) {
      all.arrive_and_wait();
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(ids.size(), threads);
    EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
  }
}

TEST(ParallelForTest, FewerNumbersThanThreadsLeaveThreadsIdle) {
  OpThreadsScope scope(5);
  std::atomic<int> ranges = 0;
  parallel_for(2, [&](int64_t begin, int64_t end) {
    EXPECT_EQ(end - begin, 1);
    ++ranges;
  });
  EXPECT_EQ(ranges, 2);
}

TEST(ParallelForTest, StaysOnItsThreadInsideARange) {
  OpThreadsScope scope(2);
  parallel_for(2, [](int64_t, int64_t) {
    const auto thread = std::this_thread::get_id();
    if (!at::in_parallel_region()) return;  // the thread sanitizer's threads are not OpenMP's
    parallel_for(10, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(std::this_thread::get_id(), thread);
      EXPECT_EQ(end - begin, 10);
    });
  });
}

TEST(ParallelForTest, RethrowsAnExceptionWhenAllRangesAreDone) {
  OpThreadsScope scope(2);
  std::atomic<int> returned = 0;
  const auto fail_at_zero = [&](int64_t begin, int64_t) {
    ++returned;
    if (begin == 0) throw std::out_of_range("zero");
  };
  EXPECT_THROW(parallel_for(2, fail_at_zero), std::out_of_range);
  EXPECT_EQ(returned, 2);
  const auto fail = [](int64_t, int64_t) { throw std::out_of_range("all"); };
  EXPECT_THROW(parallel_for(2, fail), std::out_of_range);
  parallel_for(2, [&](int64_t, int64_t) { ++returned; });
  EXPECT_EQ(returned, 4);
}

// Each thread that calls it has a team of its own, as for libtorch's operators.
TEST(ParallelForTest, SeveralThreadsCallItAtTheSameTime) {
  OpThreadsScope scope(2);
  std::atomic<int64_t> sum = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i) {
    callers.emplace_back([&] {
      for (int n = 0; n < 100; ++n) {
        parallel_for(10, [&](int64_t begin, int64_t end) { sum += end - begin; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 100 * 10);
}

}  // namespace
}  // namespace tensorpack
