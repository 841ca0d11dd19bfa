// SPDX-License-Identifier: Apache-2.0
// What holds for every augmentor, on images of all kinds.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/imgaug/imgaug.h"
#include "tests/support/throws.h"

namespace tensorpack::imgaug {
namespace {

struct Case {
  const char* name;
  ImageAugmentor augmentor;
  bool needs_colors = false;
  bool gives_float = false;
  bool gives_byte = false;
  bool has_coords = true;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> cases() {
  const auto halve = [](const at::Tensor& image) {
    return (image.to(at::kFloat) / 2).to(image.scalar_type());
  };
  return {
      {.name = "Identity", .augmentor = Identity()},
      {.name = "RandomApplyAug",
       .augmentor = RandomApplyAug(Flip({.horizontal = true, .probability = 1}), 0.5)},
      {.name = "RandomChooseAug",
       .augmentor = RandomChooseAug({Transpose(), Brightness({.delta = 30})}, {0.3, 0.7})},
      {.name = "RandomOrderAug",
       .augmentor = RandomOrderAug({Transpose(), Rotation({.max_degrees = 20}), GaussianNoise()})},
      {.name = "MapImage", .augmentor = MapImage(halve), .has_coords = false},
      {.name = "RandomCrop", .augmentor = RandomCrop({.height = 1, .width = 1})},
      {.name = "CenterCrop", .augmentor = CenterCrop({.height = 1, .width = 1})},
      {.name = "RandomCropRandomShape", .augmentor = RandomCropRandomShape({})},
      {.name = "GoogleNetRandomCropAndResize",
       .augmentor = GoogleNetRandomCropAndResize({.size = 8})},
      {.name = "RandomCutout", .augmentor = RandomCutout({.height = {1, 3}, .width = {2, 2}})},
      {.name = "Flip", .augmentor = Flip({.vertical = true, .probability = 0.5})},
      {.name = "Transpose", .augmentor = Transpose()},
      {.name = "Shift", .augmentor = Shift({.horizontal = 0.3, .vertical = 0.3})},
      {.name = "Rotation", .augmentor = Rotation({.max_degrees = 45})},
      {.name = "RotationAndCropValid", .augmentor = RotationAndCropValid({.max_degrees = 90})},
      {.name = "Affine",
       .augmentor = Affine({.scale = {0.8, 1.2},
                            .translate_horizontal = 0.1,
                            .translate_vertical = 0.1,
                            .max_degrees = 10,
                            .max_shear_degrees = 10})},
      {.name = "Resize", .augmentor = Resize({.height = 4, .width = 9})},
      {.name = "ResizeShortestEdge", .augmentor = ResizeShortestEdge({.size = 5})},
      {.name = "RandomResize", .augmentor = RandomResize({.x = {0.5, 2}})},
      {.name = "Hue", .augmentor = Hue(), .needs_colors = true},
      {.name = "Brightness", .augmentor = Brightness({.delta = 100})},
      {.name = "BrightnessScale", .augmentor = BrightnessScale({.range = {0.2, 3}})},
      {.name = "Contrast", .augmentor = Contrast({.range = {0.5, 2}})},
      {.name = "ContrastOfColors",
       .augmentor = Contrast({.range = {0.5, 2}, .rgb = true}),
       .needs_colors = true},
      {.name = "Saturation", .augmentor = Saturation(), .needs_colors = true},
      {.name = "Lighting",
       .augmentor = Lighting({.std = 1, .eigenvalues = {9, 5, 1}, .eigenvectors = {{{1}, {0, 1}}}}),
       .needs_colors = true},
      {.name = "Gamma", .augmentor = Gamma()},
      {.name = "GaussianBlur",
       .augmentor = GaussianBlur({.radius = {0, 3}, .sigma = {0, 2}, .symmetric = false})},
      {.name = "Clip", .augmentor = Clip({.min = 20, .max = 200})},
      {.name = "Grayscale", .augmentor = Grayscale(), .needs_colors = true},
      {.name = "ColorSpace",
       .augmentor = ColorSpace(ColorConversion::kRgbToLab),
       .needs_colors = true},
      {.name = "MeanVarianceNormalize", .augmentor = MeanVarianceNormalize(), .gives_float = true},
      {.name = "MinMaxNormalize",
       .augmentor = MinMaxNormalize({.all_channels = false}),
       .gives_float = true},
      {.name = "ToUint8", .augmentor = ToUint8(), .gives_byte = true},
      {.name = "ToFloat32", .augmentor = ToFloat32(), .gives_float = true},
      {.name = "JpegNoise", .augmentor = JpegNoise()},
      {.name = "GaussianNoise", .augmentor = GaussianNoise({.sigma = 20})},
      {.name = "SaltPepperNoise", .augmentor = SaltPepperNoise()},
      {.name = "CenterPaste", .augmentor = CenterPaste({.height = 20, .width = 21})},
      {.name = "RandomPaste", .augmentor = RandomPaste({.height = 20, .width = 21, .fill = 7})},
      {.name = "ColorJitter",
       .augmentor =
           ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1}),
       .needs_colors = true},
      {.name = "RandAugment", .augmentor = RandAugment({.magnitude = 20})},
      {.name = "TrivialAugment", .augmentor = TrivialAugment()},
  };
}

at::Tensor random_image(at::IntArrayRef sizes, at::ScalarType type) {
  const auto values = at::rand(sizes, at::detail::createCPUGenerator(7)) * 255;
  return values.to(type);
}

// Of one pixel and more, high and wide, with channels and without, in one piece and not.
std::vector<at::Tensor> images(const Case& c) {
  std::vector<at::Tensor> all;
  for (const auto type : {at::kByte, at::kFloat}) {
    for (const std::vector<int64_t>& size :
         std::vector<std::vector<int64_t>>{{1, 1}, {1, 7}, {11, 6}, {16, 20}}) {
      all.push_back(random_image({size[0], size[1], 3}, type));
      if (c.needs_colors) continue;
      all.push_back(random_image({size[0], size[1], 1}, type));
      all.push_back(random_image({size[0], size[1]}, type));
    }
    all.push_back(random_image({15, 16, 3}, type).narrow(0, 1, 11).narrow(1, 2, 9));
    all.push_back(random_image({3, 9, 10}, type).permute({1, 2, 0}));
  }
  return all;
}

class EveryAugmentorTest : public testing::TestWithParam<Case> {};

TEST_P(EveryAugmentorTest, DependsOnTheImageAndTheRngAlone) {
  const Case& c = GetParam();
  for (const at::Tensor& image : images(c)) {
    for (int seed = 0; seed < 10; ++seed) {
      Rng rng(1, seed);
      Rng same(1, seed);
      const at::Tensor before = image.clone();
      const auto [augmented, transform] = c.augmentor.augment(image, rng);
      EXPECT_TRUE(image.equal(before)) << "changed what it was given";
      EXPECT_TRUE(transform.apply_image(image).equal(augmented));
      EXPECT_TRUE(c.augmentor.get_transform(image, same).apply_image(image).equal(augmented));
      EXPECT_EQ(rng(), same()) << "drew another number of times";
    }
  }
}

TEST_P(EveryAugmentorTest, GivesImagesOfTheRightType) {
  const Case& c = GetParam();
  for (const at::Tensor& image : images(c)) {
    Rng rng(2, 0);
    const at::Tensor result = c.augmentor.augment(image, rng).image;
    check_image(c.name, result);
    EXPECT_EQ(result.dim(), image.dim());
    EXPECT_EQ(result.scalar_type(), c.gives_float  ? at::kFloat
                                    : c.gives_byte ? at::kByte
                                                   : image.scalar_type());
    EXPECT_TRUE(result.isfinite().all().item<bool>());
  }
}

TEST_P(EveryAugmentorTest, MovesPointsAndKeepsTheirType) {
  const Case& c = GetParam();
  const auto image = random_image({11, 6, 3}, at::kByte);
  Rng rng(3, 0);
  const Transform transform = c.augmentor.get_transform(image, rng);
  for (const auto type : {at::kFloat, at::kDouble}) {
    const auto points = at::rand({5, 2}, at::TensorOptions(type));
    if (!c.has_coords) {
      EXPECT_ERROR(transform.apply_coords(points), "but not to points in it");
      continue;
    }
    const auto moved = transform.apply_coords(points);
    EXPECT_EQ(moved.sizes(), points.sizes());
    EXPECT_EQ(moved.scalar_type(), type);
    EXPECT_EQ(transform.apply_coords(points.narrow(0, 0, 0)).size(0), 0);
  }
}

TEST_P(EveryAugmentorTest, SaysWhichImagesItCannotTake) {
  const Case& c = GetParam();
  Rng rng(4, 0);
  EXPECT_ERROR(c.augmentor.augment(at::zeros({4, 4, 3}, at::kLong), rng), "is no image");
  if (!c.needs_colors) return;
  const auto grey = random_image({4, 4, 1}, at::kByte);
  EXPECT_THROW(c.augmentor.augment(grey, rng), Error);
}

INSTANTIATE_TEST_SUITE_P(All, EveryAugmentorTest, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace tensorpack::imgaug
