// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/augment_image.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/imgaug/area_crop.h"
#include "tests/support/dataflow_contract.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using imgaug::ImageAugmentor;
using imgaug::Transform;

// A random part of the image, of random size.
ImageAugmentor random_part() {
  return {"part", [](const at::Tensor& image, Rng& rng) {
            const auto part = imgaug::random_area_crop(imgaug::size_of(image), {}, rng);
            return Transform(
                "part", [part](const at::Tensor& x) { return imgaug::crop(x, part); },
                [part](const at::Tensor& coords) {
                  return coords -
                         at::tensor({static_cast<double>(part.left), static_cast<double>(part.top)},
                                    coords.options());
                });
          }};
}

// The values of an image are its rows and columns.
DataPoint places(int64_t height, int64_t width) {
  const auto rows = at::arange(height, at::kByte).reshape({height, 1}).expand({height, width});
  const auto columns = at::arange(width, at::kByte).expand({height, width});
  return {at::stack({columns, rows}, 2), at::tensor({9.5f, 5.5f}).reshape({1, 2})};
}

FromList images(int64_t count) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < count; ++i) points.push_back(places(20 + i, 30));
  return FromList(std::move(points));
}

TEST(AugmentImageTest, AugmentsTheComponentInOnePiece) {
  auto flow = images(3) | map(AugmentImageComponent(random_part()), {.seed = 1});
  EXPECT_EQ(flow->size(), 3);
  for (const DataPoint& point : collect(*flow)) {
    EXPECT_LT(point[0].numel(), 20 * 30 * 2);
    EXPECT_TRUE(point[0].is_contiguous());
    EXPECT_TRUE(point[1].equal(places(20, 30)[1])) << "moved what it was not asked to";
  }
}

TEST(AugmentImageTest, PointsMoveWithTheImage) {
  auto flow = images(8) | map(AugmentImageCoordinates(random_part()), {.seed = 1});
  for (const DataPoint& point : collect(*flow)) {
    // What is at the first pixel tells where the part begins.
    const auto begin = point[0][0][0].to(at::kFloat);
    EXPECT_TRUE(point[1].equal(places(20, 30)[1] - begin));
  }
}

TEST(AugmentImageTest, SeveralImagesAreCutAlikeAndBoxesClipped) {
  const auto add_mask_and_box = [](DataPoint point) {
    return DataPoint{point[0], point[0] + 1, at::tensor({0.f, 0.f, 30.f, 20.f}).reshape({1, 4})};
  };
  auto flow =
      images(8) | map(add_mask_and_box) |
      map(AugmentImageComponents(random_part(), {.images = {0, 1}, .boxes = {2}}), {.seed = 1});
  for (const DataPoint& point : collect(*flow)) {
    EXPECT_TRUE((point[0] + 1).equal(point[1]));
    const auto box = point[2][0];
    EXPECT_EQ(box[0].item<float>(), 0);
    EXPECT_EQ(box[2].item<float>(), static_cast<float>(point[0].size(1)));
    EXPECT_LE(box[3].item<float>(), static_cast<float>(point[0].size(0)));
  }
}

TEST(AugmentImageTest, TheSequenceDoesNotDependOnThreads) {
  auto one = images(40) | map(AugmentImageComponent(random_part()), {.seed = 5});
  const auto expected = collect(*one);
  for (const int64_t threads : {1, 2, 4}) {
    auto several = images(40) | parallel_map(AugmentImageComponent(random_part()),
                                             {.threads = threads, .seed = 5});
    EXPECT_TRUE(same(collect(*several), expected)) << threads << " threads";
  }
  one->start(1);
  EXPECT_FALSE(same(collect(*one), expected)) << "another pass draws other parts";
}

TEST(AugmentImageTest, MakesTheRowsOfBatches) {
  const ImageAugmentor corner("corner", [](const at::Tensor&, Rng&) {
    return imgaug::photometric("corner", [](const at::Tensor& x) {
      return imgaug::crop(x, {.left = 1, .top = 2, .width = 3, .height = 4});
    });
  });
  auto flow = images(4) | map_and_batch(AugmentImageComponent(corner), 2, {.threads = 2});
  const auto batches = collect(*flow);
  ASSERT_EQ(batches.size(), 2U);
  EXPECT_EQ(batches[0][0].sizes(), at::IntArrayRef({2, 4, 3, 2}));
}

TEST(AugmentImageTest, BadImagesAreSkippedIfAskedTo) {
  const auto make = [](OnError on_error) {
    std::vector<DataPoint> points = {places(20, 30), {at::zeros({3})}, places(20, 30)};
    return FromList(std::move(points)) |
           parallel_map(AugmentImageComponent(random_part()),
                        {.threads = 2, .on_error = on_error, .seed = 1});
  };
  EXPECT_EQ(collect(*make(OnError::kSkip)).size(), 2U);
  EXPECT_ERROR(collect(*make(OnError::kThrow)), "[part] a Float tensor of shape [3]");
}

TEST(AugmentImageTest, RejectsComponentsThatAreNotThere) {
  auto flow = images(1) | map(AugmentImageComponent(random_part(), 5));
  EXPECT_ERROR(flow->next(), "there is no component 5: the datapoint has 2");
  EXPECT_ERROR(AugmentImageComponents(random_part(), {.images = {}}), "no image");
}

}  // namespace
}  // namespace tensorpack::test
