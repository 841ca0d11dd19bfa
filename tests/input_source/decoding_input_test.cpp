// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/decoding_input.h"

#include <gmock/gmock.h>

#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/image/encoded_batch.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tests/dataflow/jpeg_writer.h"
#include "tests/dataflow/numbers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

// Of every kind.
FromList jpegs() {
  std::vector<DataPoint> points;
  const auto add = [&](const std::string& jpeg) {
    points.push_back({bytes(jpeg), number(std::ssize(points))});
  };
  for (const int64_t height : {40, 51, 90}) {
    add(encode_jpeg(picture(height, 60)));
    add(encode_jpeg(picture(height, 61), {.horizontal = 1, .vertical = 1}));
    add(encode_jpeg(picture(height, 62), {.progressive = true}));
    add(encode_jpeg(picture(height, 63, 1)));
  }
  return FromList(std::move(points));
}

ImageBatchOptions small(at::ScalarType dtype) {
  return {.size = {.height = 16, .width = 24},
          .mirror = 0.5,
          .dtype = dtype,
          .mean = {120, 110, 100},
          .std = {50, 60, 70},
          .seed = 5};
}

DecodingInput decoded(const ImageBatchOptions& options) {
  return {FeedInput(jpegs() | encoded_batch(4, options), {.infinite = false}), options, at::kCPU};
}

TEST(DecodingInputTest, GivesWhatImageBatchGives) {
  ImageBatchOptions options = small(at::kByte);
  for (const bool channels_last : {false, true}) {
    for (const ImageColor color : {ImageColor::kRgb, ImageColor::kBgr}) {
      options.channels_last = channels_last;
      options.color = color;
      const auto flow = jpegs() | image_batch(4, options);
      auto source = decoded(options);
      for (int i = 0; i < 3; ++i) {
        const DataPoint expected = flow->next().value();
        const DataPoint batch = source.next().value();
        ASSERT_EQ(batch.size(), 2U);
        EXPECT_TRUE(torch::equal(batch[0], expected[0]));
        EXPECT_EQ(batch[0].strides(), expected[0].strides());
        EXPECT_TRUE(torch::equal(batch[1], expected[1]));
      }
      EXPECT_FALSE(source.next());
    }
  }
}

// Images that were no plain JPEGs have been rounded to bytes before.
TEST(DecodingInputTest, NormalisesAsImageBatchDoes) {
  const ImageBatchOptions options = small(at::kFloat);
  const auto flow = jpegs() | image_batch(4, options);
  auto source = decoded(options);
  const torch::Tensor expected = flow->next()->at(0);
  const torch::Tensor images = source.next()->at(0);
  EXPECT_TRUE(torch::equal(images.narrow(0, 0, 2), expected.narrow(0, 0, 2)));
  EXPECT_LT((images - expected).abs().max().item<double>(), 0.51 / 50);
}

TEST(DecodingInputTest, WorksUnderAStagingInput) {
  const ImageBatchOptions options = small(at::kByte);
  StagingInput source(decoded(options));
  EXPECT_EQ(source.size(), 3);
  source.reset_state(2);
  EXPECT_EQ(source.next()->at(1)[0].item<int64_t>(), 8);
  EXPECT_FALSE(source.next());
}

TEST(DecodingInputTest, OtherDataIsAnError) {
  DecodingInput single(FeedInput(numbers(3)), small(at::kByte), at::kCPU);
  EXPECT_ERROR(single.next(), "Put it at the end of the dataflow");
  DecodingInput other(FeedInput(FromList({{torch::zeros({2}), torch::zeros({2})}})),
                      small(at::kByte), at::kCPU);
  EXPECT_ERROR(other.next(), "which is not what encoded_batch() makes");
}

// Damage that the flow cannot see from the markers is found by the decoder.
TEST(DecodingInputTest, NamesTheImageThatCannotBeDecoded) {
  std::string damaged = encode_jpeg(picture(200, 200));
  for (size_t i = damaged.size() / 2; i < damaged.size() - 2; ++i) damaged[i] = '\xfe';
  ImageBatchOptions options = small(at::kByte);
  options.crop = central_area({.height = 1, .width = 1});
  DecodingInput source(FeedInput(FromList({{bytes(damaged)}}) | encoded_batch(1, options)), options,
                       at::kCPU);
  EXPECT_ERROR(source.next(), "the image");
}

#ifndef TENSORPACK_HAS_CUDA
TEST(DecodingInputTest, WithoutCudaSaysSo) {
  EXPECT_ERROR(DecodingInput(FeedInput(numbers(3)), {}), "this library was built without CUDA");
}
#endif

}  // namespace
}  // namespace tensorpack::test
