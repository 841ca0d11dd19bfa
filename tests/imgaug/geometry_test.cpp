// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>

#include "tensorpack/imgaug/imgaug.h"
#include "tests/imgaug/images.h"
#include "tests/support/throws.h"

namespace tensorpack::imgaug {
namespace {

using testing::ElementsAre;

// Pixels 0, 1, 2 ... of one channel.
at::Tensor point(double x, double y) { return at::tensor({x, y}, at::kDouble).reshape({1, 2}); }

Transform drawn(const ImageAugmentor& augmentor, const at::Tensor& image, int64_t seed = 0) {
  Rng rng(11, seed);
  return augmentor.get_transform(image, rng);
}

// Where a spot of light is: the mean place of its light, in our coordinates.
at::Tensor place_of_light(const at::Tensor& image) {
  const auto light = image.squeeze(2).to(at::kDouble);
  const auto x = at::arange(light.size(1), at::kDouble) + 0.5;
  const auto y = at::arange(light.size(0), at::kDouble) + 0.5;
  return at::stack({(light * x).sum(), (light * y.unsqueeze(1)).sum()}).reshape({1, 2}) /
         light.sum();
}

struct Movement {
  const char* name;
  ImageAugmentor augmentor;
};
void PrintTo(const Movement& c, std::ostream* out) { *out << c.name; }

class EveryGeometryTest : public testing::TestWithParam<Movement> {};

// A smooth spot stays a spot whatever is interpolated, and its middle can be told to a fraction of
// a pixel: half a pixel, the usual mistake, would show.
TEST_P(EveryGeometryTest, PointsGoWherePixelsGo) {
  constexpr double kX = 27.5;
  constexpr double kY = 17.5;
  const auto x = at::arange(50, at::kDouble) + 0.5 - kX;
  const auto y = (at::arange(40, at::kDouble) + 0.5 - kY).unsqueeze(1);
  const auto image = (255 * (-(x * x + y * y) / 8).exp()).to(at::kFloat).unsqueeze(2);
  for (int seed = 0; seed < 20; ++seed) {
    const Transform transform = drawn(GetParam().augmentor, image, seed);
    const auto expected = transform.apply_coords(point(kX, kY));
    const auto found = place_of_light(transform.apply_image(image));
    EXPECT_LT((found - expected).abs().max().item<double>(), 0.15)
        << "seed " << seed << "\nexpected " << expected << "\nfound " << found;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryGeometryTest,
    testing::ValuesIn(std::vector<Movement>{
        {"FlipHorizontally", Flip({.horizontal = true, .probability = 0.7})},
        {"FlipVertically", Flip({.vertical = true, .probability = 0.7})},
        {"Transpose", Transpose()},
        {"Shift", Shift({.horizontal = 0.1, .vertical = 0.1})},
        {"Rotation", Rotation({.max_degrees = 30, .center = {0.3, 0.7}})},
        {"RotationBySteps",
         Rotation({.max_degrees = 90, .center = {0.5, 0.5}, .step_degrees = 90})},
        {"RotationAndCropValid", RotationAndCropValid({.max_degrees = 20})},
        {"Affine", Affine({.scale = {0.8, 1.2},
                           .translate_horizontal = 0.05,
                           .translate_vertical = 0.05,
                           .max_degrees = 20,
                           .max_shear_degrees = 10})},
        {"Resize", Resize({.height = 93, .width = 61})},
        {"ResizeShortestEdge", ResizeShortestEdge({.size = 63})},
        {"RandomResize", RandomResize({.x = {0.7, 2}})},
        {"RandomCrop", RandomCrop({.height = 38, .width = 46})},
        {"CenterCrop", CenterCrop({.height = 31, .width = 39})},
        {"GoogleNet", GoogleNetRandomCropAndResize({.size = 64, .crop = {.area = {0.95, 0.97}}})},
        {"CenterPaste", CenterPaste({.height = 61, .width = 52})},
        {"RandomPaste", RandomPaste({.height = 61, .width = 52})},
        {"List", AugmentorList({Rotation({.max_degrees = 10, .center = {0.4, 0.6}}),
                                Flip({.horizontal = true}), Resize({.height = 60, .width = 70}),
                                Transpose()})},
    }),
    [](const auto& info) { return info.param.name; });

class DrawnForASizeTest : public testing::TestWithParam<Movement> {};

// Whatever is drawn: a transform that does nothing is one for the same images.
TEST_P(DrawnForASizeTest, RefusesAnImageOfAnother) {
  const auto image = at::zeros({20, 24, 3}, at::kByte);
  for (int seed = 0; seed < 10; ++seed) {
    const Transform transform = drawn(GetParam().augmentor, image, seed);
    EXPECT_NO_THROW(transform.apply_image(image));
    EXPECT_NO_THROW(transform.apply_image(image.select(2, 0))) << "a mask of the same size";
    EXPECT_ERROR(transform.apply_image(at::zeros({10, 12, 3}, at::kByte)),
                 "it was made for an image of 20 x 24, and is applied to one of 10 x 12.");
    EXPECT_ERROR(transform.apply_image(at::zeros({40, 48, 3}, at::kByte)), "one of 40 x 48.");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, DrawnForASizeTest,
    testing::ValuesIn(std::vector<Movement>{
        {"Flip", Flip({.horizontal = true})},
        {"Shift", Shift({.horizontal = 0.1})},
        {"Rotation", Rotation({.max_degrees = 30})},
        {"RotationAndCropValid", RotationAndCropValid({.max_degrees = 20})},
        {"Affine", Affine({.max_degrees = 20})},
        {"Resize", Resize({.height = 8, .width = 9})},
        {"ResizeToItsSize", Resize({.height = 20, .width = 24})},
        {"ResizeShortestEdge", ResizeShortestEdge({.size = 8})},
        {"RandomResize", RandomResize({.x = {0.7, 2}})},
        {"RandomCrop", RandomCrop({.height = 8, .width = 9})},
        {"CenterCrop", CenterCrop({.height = 8, .width = 9})},
        {"RandomCropRandomShape", RandomCropRandomShape({.min_height = 3, .min_width = 3})},
        {"GoogleNet", GoogleNetRandomCropAndResize({.size = 8})},
        {"RandomCutout", RandomCutout({.height = {2, 3}, .width = {2, 3}})},
        {"CenterPaste", CenterPaste({.height = 61, .width = 52})},
        {"RandomPaste", RandomPaste({.height = 61, .width = 52})},
        {"List", AugmentorList({Brightness({.delta = 2}), CenterCrop({.height = 9, .width = 9})})},
    }),
    [](const auto& info) { return info.param.name; });

// What only looks at colours does not care.
TEST(DrawnForAnySizeTest, PhotometricTransformsTakeAllImages) {
  const auto image = at::zeros({20, 24, 3}, at::kByte);
  for (const ImageAugmentor& augmentor :
       {BrightnessScale({.range = {0.5, 2}}), GaussianNoise({}), Transpose({.probability = 1}),
        RandomApplyAug(BrightnessScale({.range = {0.5, 2}}), 0.5), Identity()}) {
    const Transform transform = drawn(augmentor, image);
    EXPECT_NO_THROW(transform.apply_image(at::zeros({10, 12, 3}, at::kByte))) << augmentor.name();
  }
}

TEST(FlipTest, MirrorsPixelsAndPoints) {
  const auto image = counting_image(2, 3);
  const Transform flip = drawn(Flip({.horizontal = true, .probability = 1}), image);
  EXPECT_TRUE(flip.apply_image(image).equal(bytes({2, 1, 0, 5, 4, 3}, {2, 3, 1})));
  EXPECT_TRUE(flip.apply_coords(point(0, 1)).equal(point(3, 1)));  // x to width - x
  const Transform vertical = drawn(Flip({.vertical = true, .probability = 1}), image);
  EXPECT_TRUE(vertical.apply_image(image).equal(bytes({3, 4, 5, 0, 1, 2}, {2, 3, 1})));
  EXPECT_TRUE(vertical.apply_coords(point(0, 1)).equal(point(0, 1)));
}

TEST(FlipTest, NeedsExactlyOneDirection) {
  EXPECT_ERROR(Flip({}), "exactly one of .horizontal and .vertical");
  EXPECT_ERROR(Flip({.horizontal = true, .vertical = true}), "exactly one");
  EXPECT_ERROR(Flip({.horizontal = true, .probability = 2}), "2 is no probability");
}

TEST(FlipTest, HappensAsOftenAsAsked) {
  const auto image = counting_image(1, 2);
  const ImageAugmentor flip = Flip({.horizontal = true, .probability = 0.25});
  Rng rng(5, 0);
  int flips = 0;
  for (int i = 0; i < 4000; ++i) flips += !flip.augment(image, rng).image.equal(image);
  EXPECT_NEAR(flips, 1000, 100);
}

TEST(TransposeTest, SwapsRowsAndColumns) {
  const auto image = counting_image(2, 3);
  const Transform transpose = TransposeTransform();
  EXPECT_TRUE(transpose.apply_image(image).equal(bytes({0, 3, 1, 4, 2, 5}, {3, 2, 1})));
  EXPECT_TRUE(transpose.apply_coords(point(1, 2)).equal(point(2, 1)));
}

TEST(ShiftTest, MovesByWholePixelsAndFillsTheBorder) {
  const auto image = counting_image(1, 4);
  const ImageAugmentor shift =
      Shift({.horizontal = 0.5, .border = Border::kConstant, .border_value = 9});
  const at::Tensor results[] = {bytes({2, 3, 9, 9}, {1, 4, 1}), bytes({1, 2, 3, 9}, {1, 4, 1}),
                                image, bytes({9, 0, 1, 2}, {1, 4, 1}),
                                bytes({9, 9, 0, 1}, {1, 4, 1})};
  std::set<double> seen;
  for (int seed = 0; seed < 50; ++seed) {
    const Transform transform = drawn(shift, image, seed);
    const double dx = transform.apply_coords(point(0, 0)).select(1, 0).item<double>();
    seen.insert(dx);
    EXPECT_TRUE(transform.apply_image(image).equal(results[static_cast<int>(dx) + 2])) << dx;
  }
  EXPECT_THAT(seen, ElementsAre(-2, -1, 0, 1, 2));
  EXPECT_ERROR(Shift({.horizontal = 1}), "in [0, 1), got 1");
}

TEST(RotationTest, TurnsCounterClockwise) {
  // A quarter turn of a square image around its middle is exact.
  const auto image = counting_image(3, 3);
  const Transform quarter = WarpAffineTransform(rotation_around(1.5, 1.5, 90),
                                                {.interpolation = Interpolation::kNearest});
  EXPECT_TRUE(quarter.apply_image(image).equal(bytes({2, 5, 8, 1, 4, 7, 0, 3, 6}, {3, 3, 1})));
  // The middle of the upper right pixel goes to the upper left one.
  EXPECT_TRUE(quarter.apply_coords(point(2.5, 0.5)).allclose(point(0.5, 0.5)));
}

TEST(RotationTest, StepsReachBothEnds) {
  const auto image = counting_image(4, 4);
  const ImageAugmentor rotation =
      Rotation({.max_degrees = 90, .center = {0.5, 0.5}, .step_degrees = 90});
  std::set<int> seen;
  for (int seed = 0; seed < 50; ++seed) {
    // Where the middle of the right edge goes tells the angle.
    const auto moved = drawn(rotation, image, seed).apply_coords(point(4, 2)) - 2;
    const double radians = at::atan2(-moved.select(1, 1), moved.select(1, 0)).item<double>();
    seen.insert(static_cast<int>(std::lround(radians * 2 / 3.14159265358979)));
  }
  EXPECT_THAT(seen, ElementsAre(-1, 0, 1));
  EXPECT_ERROR(Rotation({.max_degrees = 90, .step_degrees = 40}), "not a multiple");
  EXPECT_ERROR(Rotation({.max_degrees = -1}), "must not be negative");
}

TEST(RotationAndCropValidTest, EveryCornerWasInTheImage) {
  for (const auto& [height, width] : {std::pair{40, 60}, {60, 40}, {30, 31}, {10, 100}}) {
    const auto image = counting_image(1, 1).expand({height, width, 1}).contiguous();
    for (int seed = 0; seed < 40; ++seed) {
      const Transform transform = drawn(RotationAndCropValid({.max_degrees = 180}), image, seed);
      const ImageSize size = size_of(transform.apply_image(image));
      // Undo the transform, which is linear, on the corners of the result.
      const auto origin = transform.apply_coords(point(0, 0));
      const auto linear = at::cat({transform.apply_coords(point(1, 0)) - origin,
                                   transform.apply_coords(point(0, 1)) - origin});
      const auto corners = boxes_to_points(
          at::tensor({0.0, 0.0, static_cast<double>(size.width), static_cast<double>(size.height)},
                     at::kDouble)
              .reshape({1, 4}));
      const auto before = (corners - origin).matmul(linear.inverse());
      EXPECT_GE(before.min().item<double>(), -0.01) << height << " x " << width;
      EXPECT_LE(before.select(1, 0).max().item<double>(), width + 0.01);
      EXPECT_LE(before.select(1, 1).max().item<double>(), height + 0.01);
    }
  }
}

TEST(RotationAndCropValidTest, KeepsAllWhereNothingIsTurned) {
  const auto image = counting_image(4, 5);
  EXPECT_TRUE(drawn(RotationAndCropValid({}), image).apply_image(image).equal(image));
}

TEST(AffineTest, ScalesAndShearsAroundTheMiddle) {
  const auto image = counting_image(4, 6);
  const Transform twice = drawn(Affine({.scale = {2, 2}}), image);
  EXPECT_TRUE(twice.apply_coords(point(3, 2)).allclose(point(3, 2)));
  EXPECT_TRUE(twice.apply_coords(point(4, 3)).allclose(point(5, 4)));
  const Transform sheared = drawn(Affine({.max_shear_degrees = 45}), image);
  const auto moved = sheared.apply_coords(point(3, 3)) - point(3, 3);
  EXPECT_LE(std::abs(moved.select(1, 0).item<double>()), 1);  // the tangent of 45 degrees
  EXPECT_NEAR(moved.select(1, 1).item<double>(), 0, 1e-12);
  EXPECT_ERROR(Affine({.scale = {0, 1}}), "scales must be positive");
  EXPECT_ERROR(Affine({.max_shear_degrees = 90}), "[0, 90) degrees");
  EXPECT_ERROR(Affine({.translate_vertical = -0.1}), "got -0.1");
}

TEST(ResizeTest, AveragesNeighboursWhenItHalves) {
  const auto image = bytes({0, 10, 20, 30, 40, 50, 60, 70}, {2, 4, 1});
  const Transform half = drawn(Resize({.height = 1, .width = 2}), image);
  // (0 + 10 + 40 + 50) / 4 and (20 + 30 + 60 + 70) / 4.
  EXPECT_TRUE(half.apply_image(image).equal(bytes({25, 45}, {1, 2, 1})));
  EXPECT_TRUE(half.apply_coords(point(4, 2)).equal(point(2, 1)));
  EXPECT_ERROR(Resize({.height = 4}), "4 x 0 pixels");
}

TEST(ResizeTest, ShortestEdgeKeepsTheShape) {
  Rng rng(1, 0);
  const ImageAugmentor resize = ResizeShortestEdge({.size = 10});
  EXPECT_EQ(size_of(resize.augment(counting_image(5, 7), rng).image),
            (ImageSize{.height = 10, .width = 14}));
  EXPECT_EQ(size_of(resize.augment(counting_image(15, 5), rng).image),
            (ImageSize{.height = 30, .width = 10}));
  EXPECT_ERROR(ResizeShortestEdge({}), "must be positive, got 0");
}

TEST(RandomResizeTest, KeepsNearTheShapeAndAboveTheMinimum) {
  const auto image = at::zeros({20, 30, 1}, at::kByte);
  for (int seed = 0; seed < 50; ++seed) {
    const auto [height, width] = size_of(
        drawn(RandomResize({.x = {0.5, 2}, .min_height = 15}), image, seed).apply_image(image));
    EXPECT_GE(height, 15);
    EXPECT_NEAR(1.5, static_cast<double>(width) / static_cast<double>(height), 0.15 * 1.5);
  }
  const Transform kept =
      drawn(RandomResize({.x = {60, 60}, .in_pixels = true, .aspect_ratio_threshold = 0}), image);
  EXPECT_EQ(size_of(kept.apply_image(image)), (ImageSize{.height = 40, .width = 60}));
}

TEST(RandomResizeTest, GivesUpAfterFiftyTries) {
  const auto image = counting_image(4, 4);
  const ImageAugmentor hopeless = RandomResize({.x = {2, 2}, .y = Range{1, 1}});
  EXPECT_TRUE(drawn(hopeless, image).apply_image(image).equal(image));
  EXPECT_ERROR(RandomResize({.x = {2, 1}}), "the range is 2 to 1");
}

TEST(CropTest, TheMiddleIsTheMiddle) {
  const auto image = counting_image(3, 4);
  const Transform center = drawn(CenterCrop({.height = 1, .width = 2}), image);
  EXPECT_TRUE(center.apply_image(image).equal(bytes({5, 6}, {1, 2, 1})));
  EXPECT_TRUE(center.apply_coords(point(1.5, 1.5)).equal(point(0.5, 0.5)));
  EXPECT_ERROR(drawn(CenterCrop({.height = 4, .width = 4}), image),
               "an image of 3 x 4 has no part of 4 x 4");
  EXPECT_ERROR(CenterCrop({.height = 4}), "4 x 0 pixels are nothing");
}

TEST(CropTest, RandomPlacesAreAllReached) {
  const auto image = counting_image(1, 4);
  std::set<int> firsts;
  std::set<int> lasts;
  for (int seed = 0; seed < 100; ++seed) {
    firsts.insert(drawn(RandomCrop({.height = 1, .width = 2}), image, seed)
                      .apply_image(image)[0][0]
                      .item<int>());
    const auto shape = drawn(RandomCropRandomShape({.min_width = 2, .max_width = 3}), image, seed)
                           .apply_image(image);
    lasts.insert(shape[0][-1].item<int>());
    EXPECT_THAT(shape.size(1), testing::AnyOf(2, 3));
  }
  EXPECT_THAT(firsts, ElementsAre(0, 1, 2));
  EXPECT_THAT(lasts, ElementsAre(1, 2, 3));
  EXPECT_ERROR(drawn(RandomCropRandomShape({.min_height = 2}), image), "no part of 2 or more");
  EXPECT_ERROR(RandomCropRandomShape({.min_height = 3, .max_height = 2}), "no sizes from 3 x 1");
}

TEST(CropTest, GoogleNetGivesSquares) {
  const auto image = counting_image(11, 20);
  EXPECT_EQ(size_of(drawn(GoogleNetRandomCropAndResize({.size = 7}), image).apply_image(image)),
            (ImageSize{.height = 7, .width = 7}));
  EXPECT_ERROR(GoogleNetRandomCropAndResize({.crop = {.area = {0.5, 2}}}), "0.5 to 2");
}

// As Tensorpack does, unless told otherwise.
TEST(CropTest, GoogleNetInterpolatesLinearly) {
  const auto image = counting_image(11, 20);
  const auto made = [&](const GoogleNetRandomCropAndResizeOptions& options) {
    return drawn(GoogleNetRandomCropAndResize(options), image).apply_image(image);
  };
  const at::Tensor linear = made({.size = 7, .interpolation = Interpolation::kLinear});
  EXPECT_TRUE(at::equal(made({.size = 7}), linear));
  EXPECT_FALSE(at::equal(made({.size = 7, .interpolation = Interpolation::kCubic}), linear));
}

TEST(CutoutTest, PaintsARectangleOfTheRightSize) {
  const auto image = at::ones({6, 8, 3}, at::kByte);
  std::set<int64_t> areas;
  for (int seed = 0; seed < 50; ++seed) {
    const auto painted =
        drawn(RandomCutout({.height = {1, 2}, .width = {3, 3}, .fill = 9}), image, seed)
            .apply_image(image);
    EXPECT_TRUE((painted.eq(1) + painted.eq(9)).all().item<bool>());
    areas.insert(painted.eq(9).sum().item<int64_t>());
  }
  EXPECT_THAT(areas, ElementsAre(1 * 3 * 3, 2 * 3 * 3));
  const auto all =
      drawn(RandomCutout({.height = {99, 99}, .width = {99, 99}}), image).apply_image(image);
  EXPECT_EQ(all.sum().item<int64_t>(), 0);
  EXPECT_ERROR(RandomCutout({.height = {1, 1}}), "0 to 0");
}

TEST(PasteTest, PutsTheImageOntoABackground) {
  const auto image = counting_image(1, 2);
  const Transform center = drawn(CenterPaste({.height = 3, .width = 4, .fill = 9}), image);
  EXPECT_TRUE(
      center.apply_image(image).equal(bytes({9, 9, 9, 9, 9, 0, 1, 9, 9, 9, 9, 9}, {3, 4, 1})));
  EXPECT_TRUE(center.apply_coords(point(0, 0)).equal(point(1, 1)));
  EXPECT_ERROR(drawn(CenterPaste({.height = 1, .width = 1}), image),
               "1 x 2 is larger than the background of 1 x 1");
  EXPECT_ERROR(RandomPaste({.height = 1}), "1 x 0");
}

TEST(PasteTest, TakesABackgroundOfOnesOwn) {
  const auto image = counting_image(1, 1);
  const auto background = [](const at::Tensor& x, ImageSize size) {
    return at::full({size.height, size.width, 1}, 5, x.options());
  };
  const auto result = drawn(RandomPaste({.height = 2, .width = 2, .background = background}), image)
                          .apply_image(image);
  EXPECT_EQ(result.sum().item<int>(), 15);
  const auto wrong = [](const at::Tensor&, ImageSize) { return at::zeros({1}); };
  EXPECT_ERROR(
      drawn(CenterPaste({.height = 2, .width = 2, .background = wrong}), image).apply_image(image),
      "the background must be Byte [2, 2, 1]");
}

}  // namespace
}  // namespace tensorpack::imgaug
