// SPDX-License-Identifier: Apache-2.0
// nvJPEG against libjpeg.
#include "tensorpack/input_source/decoding_input.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/cuda/nvjpeg.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/image/encoded_batch.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/utils/env.h"
#include "tests/cuda/device.h"
#include "tests/dataflow/jpeg_writer.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

class DecodingInputCudaTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    try {
      cuda::nvjpeg();
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
  }
};

// Of every kind, and of as many sizes.
std::vector<DataPoint> make_jpegs() {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 40; ++i) {
    const int64_t height = 150 + 7 * i;
    const int64_t width = 200 + 3 * i;
    const std::string jpeg =
        i % 6 == 3 ? encode_jpeg(picture(height, width), {.progressive = true})
        : i % 6 == 5
            ? encode_jpeg(picture(height, width, 1))
            : encode_jpeg(picture(height, width), {.horizontal = 1 + static_cast<int>(i % 2),
                                                   .vertical = 1 + static_cast<int>(i / 2 % 2)});
    points.push_back({bytes(jpeg), number(i)});
  }
  return points;
}

FromList jpegs(int64_t count) {
  static const std::vector<DataPoint> all = make_jpegs();
  return FromList(std::vector<DataPoint>(all.begin(), all.begin() + count));
}

ImageBatchOptions options_for(at::ScalarType dtype) {
  return {.size = {.height = 112, .width = 96},
          .mirror = 0.5,
          .dtype = dtype,
          .mean = {120, 110, 100},
          .std = {50, 60, 70},
          .seed = 5};
}

StagingInput decoded(DataFlowPtr flow, const ImageBatchOptions& options) {
  return StagingInput(DecodingInput(QueueInput(std::move(flow), {.infinite = false}), options),
                      {.devices = {at::kCUDA}});
}

// Decoders differ in how they bring shared colours to their pixels: by little on the whole, by more
// at edges.
void expect_alike(const at::Tensor& images, const at::Tensor& expected, double unit) {
  ASSERT_EQ(images.sizes(), expected.sizes());
  const at::Tensor difference =
      (images.cpu().to(at::kDouble) - expected.to(at::kDouble)).abs() / unit;
  EXPECT_LT(difference.mean().item<double>(), 1.5);
  EXPECT_LT(difference.max().item<double>(), 40);
}

TEST_F(DecodingInputCudaTest, GivesWhatTheCpuGives) {
  for (const char* hardware : {"1", "0"}) {
    const ScopedEnv scope("TENSORPACK_NVJPEG_HARDWARE", hardware);
    for (const at::ScalarType dtype : {at::kByte, at::kFloat}) {
      for (const bool channels_last : {false, true}) {
        ImageBatchOptions options = options_for(dtype);
        options.channels_last = channels_last;
        const auto flow = jpegs(24) | image_batch(8, options);
        StagingInput source = decoded(jpegs(24) | encoded_batch(8, options), options);
        for (int i = 0; i < 3; ++i) {
          const DataPoint expected = flow->next().value();
          const auto batch = source.next();
          ASSERT_TRUE(batch);
          EXPECT_TRUE(batch->at(0).is_cuda());
          EXPECT_EQ(batch->at(0).strides(), expected[0].strides());
          expect_alike(batch->at(0), expected[0], dtype == at::kByte ? 1 : 1 / 60.);
          EXPECT_TRUE(at::equal(batch->at(1).cpu(), expected[1]));
        }
        EXPECT_FALSE(source.next());
      }
    }
  }
}

// Colours that are not shared leave nothing to differ in but rounding.
TEST_F(DecodingInputCudaTest, IsNearlyExactWhereColoursAreNotShared) {
  ImageBatchOptions options = options_for(at::kByte);
  options.color = ImageColor::kBgr;
  options.crop = central_area(options.size);
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 8; ++i) {
    points.push_back({bytes(encode_jpeg(picture(112, 96), {.horizontal = 1, .vertical = 1}))});
  }
  const at::Tensor expected = (FromList(points) | image_batch(8, options))->next()->at(0);
  StagingInput source = decoded(FromList(points) | encoded_batch(8, options), options);
  const at::Tensor images = source.next()->at(0).cpu();
  EXPECT_LE((images.to(at::kInt) - expected.to(at::kInt)).abs().max().item<int>(), 4);
}

// Damage that only a decoder sees: an error that names the image, or pixels, as nvJPEG sees fit.
TEST_F(DecodingInputCudaTest, DamagedImagesDoNotEndTheProcess) {
  std::string damaged = encode_jpeg(picture(200, 200));
  for (size_t i = damaged.size() / 2; i < damaged.size() - 2; ++i) damaged[i] = '\xfe';
  ImageBatchOptions options = options_for(at::kByte);
  options.crop = central_area({.height = 1, .width = 1});
  const std::string good = encode_jpeg(picture(200, 200));
  StagingInput source =
      decoded(FromList({{bytes(good)}, {bytes(damaged)}}) | encoded_batch(2, options), options);
  try {
    EXPECT_EQ(source.next()->at(0).size(0), 2);
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the image"));
  }
  // And the device still works.
  StagingInput again = decoded(jpegs(8) | encoded_batch(8, options), options);
  EXPECT_EQ(again.next()->at(0).cpu().size(0), 8);
}

// The loop may keep batches, and the device may be behind.
TEST_F(DecodingInputCudaTest, BatchesAreRightWhenTheDeviceIsBehind) {
  const ImageBatchOptions options = options_for(at::kByte);
  const at::Tensor busy = at::rand({4096, 4096}, at::kCUDA);
  StagingInput source = decoded(jpegs(40) | encoded_batch(4, options), options);
  std::vector<at::Tensor> sums;
  for (int i = 0; i < 10; ++i) {
    const auto batch = source.next();
    for (int k = 0; k < 5; ++k) at::mm(busy, busy);
    sums.push_back(batch->at(0).to(at::kDouble).sum());
  }
  const auto flow = jpegs(40) | image_batch(4, options);
  for (int i = 0; i < 10; ++i) {
    const at::Tensor expected = flow->next()->at(0).to(at::kDouble).sum();
    EXPECT_NEAR(sums[i].item<double>() / expected.item<double>(), 1, 0.01) << i;
  }
}

}  // namespace
}  // namespace tensorpack::test
