// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/encoded_batch.h"

#include <gmock/gmock.h>

#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/image/detail/packed_images.h"
#include "tensorpack/dataflow/image/detail/plain_jpeg.h"
#include "tensorpack/dataflow/image/image_batch.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/value.h"
#include "tests/dataflow/jpeg_writer.h"
#include "tests/support/dataflow_contract.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using detail::is_plain_jpeg;

TEST(PlainJpegTest, WhatCamerasWriteIsPlain) {
  for (const auto& [horizontal, vertical] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}}) {
    EXPECT_TRUE(is_plain_jpeg(
        encode_jpeg(picture(20, 30), {.horizontal = horizontal, .vertical = vertical})));
  }
  EXPECT_TRUE(is_plain_jpeg(encode_jpeg(picture(20, 30)) + "and more"));
}

TEST(PlainJpegTest, OtherKindsAreNot) {
  EXPECT_FALSE(is_plain_jpeg(""));
  EXPECT_FALSE(is_plain_jpeg("\x89PNG"));
  EXPECT_FALSE(is_plain_jpeg(encode_jpeg(picture(20, 30, 1)))) << "gray";
  EXPECT_FALSE(is_plain_jpeg(encode_jpeg(picture(20, 30, 4)))) << "CMYK";
  EXPECT_FALSE(is_plain_jpeg(encode_jpeg(picture(20, 30), {.progressive = true})));
  EXPECT_FALSE(is_plain_jpeg(encode_jpeg(picture(20, 30), {.horizontal = 4, .vertical = 1})));
}

TEST(PlainJpegTest, IsNotPlainWhereverItIsCut) {
  const std::string jpeg = encode_jpeg(picture(20, 30));
  for (size_t size = 0; size < jpeg.size(); ++size) {
    EXPECT_FALSE(is_plain_jpeg(std::string_view(jpeg).substr(0, size))) << size;
  }
}

// Neither another frame nor another scan nor other colours can hide behind the first.
TEST(PlainJpegTest, MarkersThatChangeTheImageAreNotOverlooked) {
  const std::string jpeg = encode_jpeg(picture(20, 30));
  const size_t frame = jpeg.find("\xff\xc0");
  const std::string twice = std::string(jpeg).insert(frame, jpeg.substr(frame, 19));
  EXPECT_FALSE(is_plain_jpeg(twice));
  const std::string adobe(
      "\xff\xee\x00\x0e"
      "Adobe\x00\x64\x00\x00\x00\x00\x00",
      16);
  EXPECT_FALSE(is_plain_jpeg(std::string(jpeg).insert(2, adobe))) << "RGB";
  std::string colors = adobe;
  colors.back() = 1;
  EXPECT_TRUE(is_plain_jpeg(std::string(jpeg).insert(2, colors))) << "YCbCr";
  std::string scans = jpeg;
  scans.replace(scans.size() - 2, 2, "\xff\xda\xff\xd9");
  EXPECT_FALSE(is_plain_jpeg(scans));
}

FromList images(const std::vector<std::string>& encoded) {
  std::vector<DataPoint> points;
  for (const std::string& image : encoded) {
    points.push_back({bytes(image), number(std::ssize(points))});
  }
  return FromList(std::move(points));
}

const ImageBatchOptions kSmall{.size = {.height = 8, .width = 12}, .mirror = 0.5, .seed = 3};

TEST(EncodedBatchTest, BothKindsOfBatchesKeepTheContractOfStages) {
  const std::vector<std::string> seven(7, encode_jpeg(picture(20, 30)));
  ImageBatchOptions options = kSmall;
  options.threads = 2;
  expect_keeps_the_contract([&] { return images(seven) | encoded_batch(3, options); });
  expect_keeps_the_contract([&] { return images(seven) | image_batch(3, options); });
}

TEST(EncodedBatchTest, KeepsPlainJpegsAndDecodesTheRest) {
  const std::string plain = encode_jpeg(picture(40, 60));
  const auto flow =
      images({plain, encode_jpeg(picture(30, 50, 1)), plain}) | encoded_batch(3, kSmall);
  const DataPoint batch = flow->next().value();
  ASSERT_EQ(batch.size(), 3U);
  const auto packed = detail::unpack(batch[0], batch[1]);
  ASSERT_EQ(packed.size(), 3U);
  EXPECT_TRUE(packed[0].is_jpeg);
  EXPECT_EQ(packed[0].bytes, plain);
  EXPECT_EQ(packed[0].size.width, 60);
  EXPECT_EQ(packed[0].name, "the image");
  EXPECT_FALSE(packed[1].is_jpeg);
  EXPECT_EQ(packed[1].bytes.size(), 8U * 12 * 3);
  EXPECT_EQ(packed[2].bytes, plain);
  EXPECT_TRUE(torch::equal(batch[2], torch::arange(3)));
}

TEST(EncodedBatchTest, CountsAndSkipsAsBatchesDo) {
  const std::vector<std::string> seven(7, encode_jpeg(picture(20, 30)));
  ImageBatchOptions options = kSmall;
  auto flow = images(seven) | encoded_batch(3, options);
  EXPECT_EQ(flow->size(), 2);
  EXPECT_EQ(flow->skip(1), 1);
  EXPECT_EQ(flow->next()->at(2)[0].item<int64_t>(), 3);
  EXPECT_FALSE(flow->next());
  options.remainder = true;
  flow = images(seven) | encoded_batch(3, options);
  EXPECT_EQ(flow->size(), 3);
  EXPECT_EQ(flow->skip(2), 2);
  EXPECT_EQ(flow->next()->at(1).size(0), 1);
  EXPECT_EQ(flow->skip(5), 0);
}

TEST(EncodedBatchTest, PassesRepeatWhateverTheThreads) {
  const std::vector<std::string> encoded(6, encode_jpeg(picture(40, 60)));
  const auto choices = [&](int64_t threads, int64_t pass) {
    ImageBatchOptions options = kSmall;
    options.threads = threads;
    const auto flow = images(encoded) | encoded_batch(6, options);
    flow->start(pass);
    return flow->next()->at(1);
  };
  EXPECT_TRUE(torch::equal(choices(1, 4), choices(3, 4)));
  EXPECT_FALSE(torch::equal(choices(1, 4), choices(1, 5)));
}

TEST(EncodedBatchTest, DamagedImagesAreNamedOrLeftOut) {
  const std::string plain = encode_jpeg(picture(40, 60));
  const std::vector<std::string> some = {plain, plain.substr(0, plain.size() / 2), plain};
  ImageBatchOptions options = kSmall;
  options.crop = central_area(options.size);
  const auto flow = images(some) | encoded_batch(3, options);
  EXPECT_ERROR(flow->next(), "[encoded_batch]");
  options.on_error = OnError::kSkip;
  const auto skipping = images(some) | encoded_batch(2, options);
  EXPECT_TRUE(torch::equal(skipping->next()->at(2), torch::tensor({0, 2})));
}

TEST(EncodedBatchTest, BadOptionsAreErrors) {
  EXPECT_ERROR(encoded_batch(0), "must be positive");
  EXPECT_ERROR(encoded_batch(2, {.mirror = 2}), "[encoded_batch]");
  EXPECT_ERROR(images({encode_jpeg(picture(9, 9))}) | encoded_batch(2), "too few for one batch");
}

TEST(EncodedBatchTest, OtherBatchesAreNotUnpacked) {
  EXPECT_ERROR(detail::unpack(torch::zeros({3}), torch::zeros({3})), "which is not what");
  const auto image = detail::pack({.bytes = "abc", .size = {2, 2}, .name = "it"});
  EXPECT_ERROR(detail::unpack(image.first, image.second.unsqueeze(0)), "is not inside it");
  EXPECT_ERROR(detail::unpack(image.first.narrow(0, 0, 2), image.second.unsqueeze(0)),
               "more bytes");
}

}  // namespace
}  // namespace tensorpack::test
