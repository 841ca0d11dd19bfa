// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/imgaug/area_crop.h"
#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/boxes.h"
#include "tests/imgaug/images.h"
#include "tests/support/throws.h"

namespace tensorpack::imgaug {
namespace {

using testing::ElementsAre;

// Pixels 0, 1, 2 ... of one channel.
Transform shift_right(double by) {
  return {"shift", [](const at::Tensor& image) { return image.roll(1, 1); },
          [by](const at::Tensor& coords) {
            return coords + at::tensor({by, 0.0}, at::kFloat);
          }};
}

// A transform that depends on the width of the image it is drawn for.
ImageAugmentor drop_column() {
  return {"drop_column", [](const at::Tensor& image, Rng&) {
            const int64_t width = image.size(1) - 1;
            return Transform(
                "drop_column", [width](const at::Tensor& x) { return x.narrow(1, 0, width); },
                [](const at::Tensor& coords) { return coords; });
          }};
}

TEST(TransformTest, AListAppliesTheFirstFirst) {
  const Transform both = shift_right(1) + Transform(
                                              "double", [](const at::Tensor& x) { return x * 2; },
                                              [](const at::Tensor& coords) { return coords * 2; });
  EXPECT_TRUE(both.apply_coords(at::ones({1, 2})).equal(at::tensor({4.f, 2.f}).reshape({1, 2})));
  EXPECT_TRUE(both.apply_image(counting_image(1, 3))
                  .equal(at::tensor({4, 0, 2}, at::kByte).reshape({1, 3, 1})));
}

TEST(TransformTest, OneForASizeRefusesOtherImages) {
  const Transform bound = shift_right(1).only_for({.height = 2, .width = 3});
  EXPECT_TRUE(bound.apply_image(counting_image(2, 3))
                  .equal(shift_right(1).apply_image(counting_image(2, 3))));
  EXPECT_ERROR(bound.apply_image(counting_image(3, 2)),
               "[shift] it was made for an image of 2 x 3, and is applied to one of 3 x 2.");
  EXPECT_ERROR((identity() + bound).apply_image(counting_image(3, 2)), "for an image of 2 x 3");
}

TEST(TransformTest, ImageOnlyTransformsSaySoWhenPointsCome) {
  const Transform invert("invert", [](const at::Tensor& x) { return 255 - x; });
  EXPECT_ERROR(invert.apply_coords(at::zeros({1, 2})), "[invert] it is known what this does");
}

TEST(TransformTest, RejectsWhatIsNoImageAndWhatAreNoPoints) {
  const Transform same = identity();
  EXPECT_ERROR(same.apply_image(at::zeros({3})), "Float tensor of shape [3] on cpu is no image");
  EXPECT_ERROR(same.apply_image(at::zeros({2, 2, 3}, at::kLong)), "Long tensor of shape [2, 2, 3]");
  EXPECT_ERROR(same.apply_image(at::zeros({0, 2, 3})), "no image");
  EXPECT_ERROR(same.apply_image({}), "undefined");
  EXPECT_ERROR(same.apply_coords(at::zeros({2, 3})), "points must be a tensor [n, 2]");
  EXPECT_ERROR(same.apply_coords(at::zeros({2, 2}, at::kLong)), "Long [2, 2]");
}

TEST(BoxesTest, CornersComeBackAsBoxes) {
  const auto boxes = at::tensor({1.f, 2.f, 5.f, 4.f}).reshape({1, 4});
  const auto points = boxes_to_points(boxes);
  EXPECT_TRUE(points.equal(at::tensor({1.f, 2.f, 5.f, 2.f, 5.f, 4.f, 1.f, 4.f}).reshape({4, 2})));
  EXPECT_TRUE(points_to_boxes(points).equal(boxes));
  EXPECT_EQ(points_to_boxes(boxes_to_points(at::zeros({0, 4}))).sizes(), at::IntArrayRef({0, 4}));
  EXPECT_ERROR(boxes_to_points(at::zeros({2, 2})), "boxes must be a tensor [n, 4]");
  EXPECT_ERROR(points_to_boxes(at::zeros({3, 2})), "[4n, 2]");
}

TEST(BoxesTest, AreTurnedWithTheirImageAndStayUpright) {
  const Transform transposed(
      "transpose", [](const at::Tensor& x) { return x.transpose(0, 1); },
      [](const at::Tensor& coords) { return coords.flip({1}); });
  const auto boxes = at::tensor({1.f, 2.f, 5.f, 4.f}).reshape({1, 4});
  EXPECT_TRUE(
      transposed.apply_boxes(boxes).equal(at::tensor({2.f, 1.f, 4.f, 5.f}).reshape({1, 4})));
}

TEST(BoxesTest, ClippingKeepsTheInsideAndEmptiesTheOutside) {
  const auto boxes = at::tensor({-1.f, -2.f, 3.f, 9.f, 7.f, 1.f, 9.f, 2.f}).reshape({2, 4});
  EXPECT_TRUE(clip_boxes(boxes, {.height = 5, .width = 4})
                  .equal(at::tensor({0.f, 0.f, 3.f, 5.f, 4.f, 1.f, 4.f, 2.f}).reshape({2, 4})));
}

TEST(AugmentorListTest, DrawsEachTransformForTheImageBefore) {
  const ImageAugmentor twice = AugmentorList({drop_column(), drop_column()});
  Rng rng(1, 0);
  const auto image = counting_image(2, 4);
  const auto [augmented, transform] = twice.augment(image, rng);
  EXPECT_EQ(augmented.size(1), 2);
  EXPECT_TRUE(transform.apply_image(image).equal(augmented));
  EXPECT_EQ(twice.get_transform(image, rng).apply_image(image).size(1), 2);
}

TEST(AugmentorListTest, OfNothingLeavesTheImage) {
  Rng rng(1, 0);
  const auto image = counting_image(2, 2);
  EXPECT_TRUE(AugmentorList({}).augment(image, rng).image.equal(image));
}

TEST(CropTest, TakesTheRectangleAsAView) {
  const auto image = counting_image(3, 4);
  const auto part = crop(image, {.left = 1, .top = 1, .width = 2, .height = 2});
  EXPECT_TRUE(part.equal(at::tensor({5, 6, 9, 10}, at::kByte).reshape({2, 2, 1})));
  EXPECT_TRUE(part.is_alias_of(image));
  EXPECT_ERROR(crop(image, {.left = 3, .top = 0, .width = 2, .height = 2}),
               "2 x 2 pixels at column 3, row 0 are not in an image of 3 x 4");
}

TEST(RandomAreaCropTest, StaysInTheImageWithTheAreaAndShapeAskedFor) {
  Rng rng(3, 0);
  constexpr ImageSize kSize = {.height = 375, .width = 500};
  bool is_wide = false;
  bool is_high = false;
  for (int i = 0; i < 1000; ++i) {
    const auto [left, top, width, height] = random_area_crop(kSize, {}, rng);
    EXPECT_GE(left, 0);
    EXPECT_GE(top, 0);
    EXPECT_LE(left + width, kSize.width);
    EXPECT_LE(top + height, kSize.height);
    EXPECT_GT(width * height, 0.079 * 375 * 500);
    EXPECT_LT(static_cast<double>(std::max(width, height)) / std::min(width, height), 1.36);
    is_wide |= width > height;
    is_high |= height > width;
  }
  EXPECT_TRUE(is_wide && is_high);
}

TEST(RandomAreaCropTest, ReachesTheLastPlace) {
  Rng rng(4, 0);
  // Of 4 x 1 pixels a quarter is one pixel, in one of four places.
  std::set<int64_t> places;
  for (int i = 0; i < 100; ++i) {
    places.insert(random_area_crop({.height = 1, .width = 4},
                                   {.area = {0.25, 0.25}, .aspect_ratio = {1, 1}}, rng)
                      .left);
  }
  EXPECT_THAT(places, ElementsAre(0, 1, 2, 3));
}

TEST(RandomAreaCropTest, TakesTheMiddleSquareWhereNothingFits) {
  Rng rng(5, 0);
  // All of a long image with a square shape: 20 x 20 does not fit into 10 x 40.
  EXPECT_EQ(
      random_area_crop({.height = 10, .width = 40}, {.area = {1, 1}, .aspect_ratio = {1, 1}}, rng),
      (Rectangle{.left = 15, .top = 0, .width = 10, .height = 10}));
}

TEST(RandomAreaCropTest, RejectsWrongRanges) {
  Rng rng(6, 0);
  EXPECT_ERROR(random_area_crop({.height = 9, .width = 9}, {.area = {0, 1}}, rng),
               "the range is 0 to 1");
  EXPECT_ERROR(random_area_crop({.height = 9, .width = 9}, {.aspect_ratio = {2, 1}}, rng),
               "the range is 2 to 1");
  EXPECT_ERROR(random_area_crop({}, {}, rng), "0 x 0");
}

}  // namespace
}  // namespace tensorpack::imgaug
