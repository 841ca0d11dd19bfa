// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/staging_input.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/input_source/feed_input.h"
#include "tests/cuda/device.h"
#include "tests/dataflow/numbers.h"

namespace tensorpack::test {
namespace {

using StagingInputCudaTest = CudaTest;

// Large enough that a copy takes longer than issuing it.
DataPoint large(DataPoint point) {
  return {at::full({1 << 20}, point[0].item<int64_t>(), at::kInt), point[0]};
}

TEST_F(StagingInputCudaTest, BatchesArriveOnTheDeviceInOrder) {
  StagingInput source(FeedInput(numbers(10) | map(large), {.infinite = false}),
                      {.devices = {at::kCUDA}});
  for (int pass = 0; pass < 2; ++pass) {
    source.reset_state();
    for (int64_t i = 0; i < 10; ++i) {
      const auto batch = source.next();
      ASSERT_TRUE(batch);
      EXPECT_TRUE(batch->at(0).is_cuda());
      EXPECT_EQ(batch->at(0).min().item<int64_t>(), i);
      EXPECT_EQ(batch->at(0).max().item<int64_t>(), i);
      EXPECT_EQ(batch->at(1).item<int64_t>(), i);
    }
    EXPECT_FALSE(source.next());
  }
}

// The loop may keep batches: their memory is not used again.
TEST_F(StagingInputCudaTest, BatchesThatAreKeptKeepTheirContents) {
  StagingInput source(FeedInput(numbers(30) | map(large)), {.devices = {at::kCUDA}});
  std::vector<at::Tensor> kept;
  for (int64_t i = 0; i < 30; ++i) kept.push_back(source.next()->at(0));
  for (int64_t i = 0; i < 30; ++i) EXPECT_EQ(kept[i].min().item<int64_t>(), i);
}

// While the device is busy, what it will read must not be overwritten.
TEST_F(StagingInputCudaTest, BatchesAreRightWhenTheDeviceIsBehind) {
  StagingInput source(FeedInput(numbers(40) | map(large)), {.devices = {at::kCUDA}});
  const at::Tensor busy = at::rand({4096, 4096}, at::kCUDA);
  std::vector<at::Tensor> sums;
  for (int64_t i = 0; i < 40; ++i) {
    const auto batch = source.next();
    for (int k = 0; k < 5; ++k) at::mm(busy, busy);
    sums.push_back(batch->at(0).to(at::kLong).sum());
  }
  for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(sums[i].item<int64_t>(), i << 20);
}

}  // namespace
}  // namespace tensorpack::test
