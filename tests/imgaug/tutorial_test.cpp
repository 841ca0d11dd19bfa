// SPDX-License-Identifier: Apache-2.0
// What docs/tutorial/imgaug.md shows.
#include <gmock/gmock.h>
#include <torch/types.h>

#include <opencv2/imgproc.hpp>

#include "tensorpack/dataflow/augment_image.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/mixup.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/imgaug/imgaug.h"
#include "tensorpack/imgaug/mat.h"

namespace tensorpack {
namespace {

imgaug::ImageAugmentor for_training() {
  using namespace imgaug;
  return AugmentorList({
      GoogleNetRandomCropAndResize({.size = 224}),
      ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4}),
      Flip({.horizontal = true}),
  });
}

FromList photographs() {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 8; ++i) {
    const auto image = torch::randint(256, {60, 80, 3}, torch::kByte);
    points.push_back({image, torch::tensor(i % 4)});
  }
  return FromList(std::move(points));
}

TEST(ImgaugTutorialTest, TrainsOnAugmentedBatches) {
  DataFlowPtr train = photographs() |
                      parallel_map(AugmentImageComponent(for_training()),
                                   {.threads = 2, .on_error = OnError::kSkip}) |
                      batch(4) | map(Mixup({.alpha = 0.2, .classes = 4}));
  const auto first = train->next();
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)[0].sizes(), at::IntArrayRef({4, 224, 224, 3}));
  EXPECT_EQ((*first)[1].sizes(), at::IntArrayRef({4, 4}));
}

TEST(ImgaugTutorialTest, MovesBoxesWithTheImage) {
  const auto photograph = torch::zeros({60, 80, 3}, torch::kByte);
  const auto boxes = torch::tensor({10., 10., 30., 40.}).reshape({1, 4});
  Rng rng(/*seed=*/1, /*pass=*/0);

  const auto [image, transform] = for_training().augment(photograph, rng);
  const auto moved = imgaug::clip_boxes(transform.apply_boxes(boxes), imgaug::size_of(image));

  EXPECT_EQ(moved.sizes(), at::IntArrayRef({1, 4}));
  EXPECT_LE(moved.max().item<double>(), 224);
}

imgaug::ImageAugmentor median_blur() {
  return imgaug::MapImage([](const torch::Tensor& image) {
    return imgaug::map_mat(image, [](const cv::Mat& in) {
      cv::Mat out;
      cv::medianBlur(in, out, 3);
      return out;
    });
  });
}

imgaug::ImageAugmentor random_invert(double probability) {
  return {"random_invert", [probability](const torch::Tensor&, Rng& rng) {
            if (!rng.chance(probability)) return imgaug::identity();
            return imgaug::photometric("invert",
                                       [](const torch::Tensor& image) { return 255 - image; });
          }};
}

TEST(ImgaugTutorialTest, TakesAugmentorsOfOnesOwn) {
  Rng rng(1, 0);
  const auto both = imgaug::AugmentorList({median_blur(), random_invert(1)});
  const auto image = torch::full({4, 4, 1}, 5, torch::kByte);
  EXPECT_TRUE(both.augment(image, rng).image.eq(250).all().item<bool>());
}

}  // namespace
}  // namespace tensorpack
