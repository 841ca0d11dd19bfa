// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <opencv2/imgproc.hpp>
#include <set>

#include "tensorpack/imgaug/detail/tone.h"
#include "tensorpack/imgaug/imgaug.h"
#include "tensorpack/imgaug/mat.h"
#include "tests/imgaug/images.h"
#include "tests/support/throws.h"

namespace tensorpack::imgaug {
namespace {

at::Tensor floats(std::vector<double> values, at::IntArrayRef sizes) {
  return at::tensor(values).to(at::kFloat).reshape(sizes);
}

at::Tensor augmented(const ImageAugmentor& augmentor, const at::Tensor& image, int64_t seed = 0) {
  Rng rng(21, seed);
  return augmentor.augment(image, rng).image;
}

// One row of pixels of three colours.
at::Tensor colors(std::vector<int64_t> values) {
  const auto pixels = static_cast<int64_t>(values.size()) / 3;
  return bytes(std::move(values), {1, pixels, 3});
}

TEST(BrightnessTest, BytesAreAlwaysClippedAndFloatsIfAsked) {
  const ImageAugmentor twice = BrightnessScale({.range = {2, 2}});
  EXPECT_TRUE(augmented(twice, bytes({0, 100, 200}, {1, 3})).equal(bytes({0, 200, 255}, {1, 3})));
  const auto image = floats({-3, 100, 200}, {1, 3});
  EXPECT_TRUE(augmented(twice, image).equal(floats({0, 200, 255}, {1, 3})));
  const ImageAugmentor unclipped = BrightnessScale({.range = {2, 2}, .clip = false});
  EXPECT_TRUE(augmented(unclipped, image).equal(floats({-6, 200, 400}, {1, 3})));
  EXPECT_TRUE(
      augmented(unclipped, bytes({0, 100, 200}, {1, 3})).equal(bytes({0, 200, 255}, {1, 3})));
}

TEST(BrightnessTest, AddsTheSameToAllUpToDelta) {
  const auto image = floats({10, 20, 30}, {1, 1, 3});
  double low = 0;
  double high = 0;
  for (int seed = 0; seed < 100; ++seed) {
    const auto added = augmented(Brightness({.delta = 8, .clip = false}), image, seed) - image;
    EXPECT_LT((added - added[0][0][0]).abs().max().item<float>(), 1e-5);
    low = std::min(low, added[0][0][0].item<double>());
    high = std::max(high, added[0][0][0].item<double>());
  }
  EXPECT_GE(low, -8);
  EXPECT_LT(low, -7);
  EXPECT_LE(high, 8);
  EXPECT_GT(high, 7);
  EXPECT_ERROR(Brightness({.delta = -1}), "got -1");
  EXPECT_ERROR(BrightnessScale({.range = {2, 1}}), "it is 2 to 1");
}

TEST(ContrastTest, IsAboutTheMeanOfEachChannelOrOfGrey) {
  EXPECT_TRUE(augmented(Contrast({.range = {2, 2}}), bytes({10, 20, 30}, {1, 3, 1}))
                  .equal(bytes({0, 20, 40}, {1, 3, 1})));
  // Without contrast only the mean is left: (20, 30, 40), of which 0.299 * 20 + 0.587 * 30 +
  // 0.114 * 40 = 28.15 is grey; with red and blue exchanged, 0.114 * 20 + 17.61 + 0.299 * 40 =
  // 31.85.
  const auto image = colors({10, 20, 30, 30, 40, 50});
  EXPECT_TRUE(
      augmented(Contrast({.range = {0, 0}}), image).equal(colors({20, 30, 40, 20, 30, 40})));
  EXPECT_TRUE(augmented(Contrast({.range = {0, 0}, .rgb = true}), image)
                  .equal(colors({28, 28, 28, 28, 28, 28})));
  EXPECT_TRUE(augmented(Contrast({.range = {0, 0}, .rgb = false}), image)
                  .equal(colors({32, 32, 32, 32, 32, 32})));
  EXPECT_ERROR(Contrast({.range = {-1, 1}}), "-1 to 1");
}

TEST(SaturationTest, IsAboutTheGreyOfEachPixel) {
  // Grey is 0.299 * 10 + 0.587 * 20 + 0.114 * 30 = 18.15.
  const auto image = colors({10, 20, 30});
  EXPECT_TRUE(SaturationTransform(0).apply_image(image).equal(colors({18, 18, 18})));
  EXPECT_TRUE(SaturationTransform(1).apply_image(image).equal(image));
  EXPECT_TRUE(SaturationTransform(2).apply_image(image).equal(colors({2, 22, 42})));
  const auto precise = SaturationTransform(2).apply_image(image.to(at::kFloat));
  EXPECT_TRUE(precise.allclose(floats({1.85, 21.85, 41.85}, {1, 1, 3})));
  EXPECT_ERROR(Saturation({.alpha = -1}), "got -1");
}

TEST(HueTest, TurnsTheCircleOfColours) {
  const auto red_green = colors({255, 0, 0, 0, 255, 0});
  const auto by = [](double degrees, bool rgb = true) {
    return Hue({.range = {degrees, degrees}, .rgb = rgb});
  };
  EXPECT_TRUE(augmented(by(60), red_green).equal(colors({0, 255, 0, 0, 0, 255})));
  EXPECT_TRUE(augmented(by(-60), red_green).equal(colors({0, 0, 255, 255, 0, 0})));
  EXPECT_TRUE(augmented(by(180), red_green).equal(red_green));
  // Blue to red, if the first channel is blue.
  EXPECT_TRUE(augmented(by(60, false), colors({255, 0, 0})).equal(colors({0, 0, 255})));
  EXPECT_TRUE(augmented(by(60), red_green.to(at::kFloat))
                  .allclose(colors({0, 255, 0, 0, 0, 255}).to(at::kFloat), 0, 1e-3));
}

TEST(GammaTest, RaisesToThePowerAndRounds) {
  const auto all = at::arange(256, at::kByte).reshape({16, 16});
  EXPECT_TRUE(augmented(Gamma({.range = {0, 0}}), all).equal(all));
  // 255 * sqrt(64 / 255) = 127.75
  EXPECT_TRUE(augmented(Gamma({.range = {1, 1}}), bytes({0, 64, 255}, {1, 3}))
                  .equal(bytes({0, 128, 255}, {1, 3})));
  EXPECT_TRUE(augmented(Gamma({.range = {1, 1}}), floats({-1, 64, 255}, {1, 3}))
                  .allclose(floats({0, 127.7498, 255}, {1, 3})));
  EXPECT_ERROR(Gamma({.range = {-1, 0}}), "greater than -1");
}

TEST(LightingTest, AddsAlongTheAxes) {
  const auto image = floats({10, 20, 30, 40, 50, 60}, {1, 2, 3});
  const ImageAugmentor lighting = Lighting({.std = 1,
                                            .eigenvalues = {2, 0, 0},
                                            .eigenvectors = {{{1, 9, 9}, {-1, 9, 9}, {0.5, 9, 9}}},
                                            .clip = false});
  std::vector<double> along;
  for (int seed = 0; seed < 2000; ++seed) {
    const auto added = augmented(lighting, image, seed) - image;
    along.push_back(added[0][0][0].item<double>());
    EXPECT_TRUE(added[0][1].allclose(floats({1, -1, 0.5}, {3}) * along.back(), 1e-4, 1e-4));
  }
  const auto drawn = at::tensor(along);
  EXPECT_NEAR(drawn.mean().item<double>(), 0, 0.15);
  EXPECT_NEAR(drawn.std().item<double>(), 2, 0.15);
}

TEST(BlurTest, SpreadsAPointByBinomialWeights) {
  auto image = at::zeros({5, 5});
  image[2][2] = 160;
  const auto blurred = augmented(GaussianBlur({.radius = {1, 1}}), image);
  const auto expected = at::zeros({5, 5});
  expected.narrow(0, 1, 3).narrow(1, 1, 3).copy_(
      floats({10, 20, 10, 20, 40, 20, 10, 20, 10}, {3, 3}));
  EXPECT_TRUE(blurred.allclose(expected));
  EXPECT_TRUE(augmented(GaussianBlur({.radius = {0, 0}}), image).equal(image));
  EXPECT_ERROR(GaussianBlur({.radius = {-1, 2}}), "no radii from -1 to 2");
}

TEST(NormalizeTest, MeanAndVariance) {
  const auto image = bytes({0, 10, 2, 30}, {1, 2, 2});
  // Channels are {0, 2} and {10, 30}.
  EXPECT_TRUE(augmented(MeanVarianceNormalize({.all_channels = false}), image)
                  .allclose(floats({-1, -1, 1, 1}, {1, 2, 2})));
  const auto all = augmented(MeanVarianceNormalize(), image);
  EXPECT_NEAR(all.mean().item<double>(), 0, 1e-6);
  EXPECT_NEAR(all.std(/*unbiased=*/false).item<double>(), 1, 1e-6);
  // A deviation below 1 / sqrt(4) counts as that.
  EXPECT_TRUE(augmented(MeanVarianceNormalize(), floats({1, 1, 1, 1.2}, {2, 2}))
                  .allclose(floats({-0.1, -0.1, -0.1, 0.3}, {2, 2}), 1e-4, 1e-4));
}

TEST(NormalizeTest, Extremes) {
  EXPECT_TRUE(augmented(MinMaxNormalize(), bytes({10, 20, 30}, {1, 3}))
                  .allclose(floats({0, 127.5, 255}, {1, 3})));
  EXPECT_TRUE(augmented(MinMaxNormalize({.min = -1, .max = 1, .all_channels = false}),
                        bytes({0, 10, 2, 30}, {1, 2, 2}))
                  .allclose(floats({-1, -1, 1, 1}, {1, 2, 2})));
  EXPECT_TRUE(augmented(MinMaxNormalize(), bytes({7, 7}, {1, 2})).equal(floats({0, 0}, {1, 2})));
}

TEST(ConversionTest, BytesAreRoundedAndClipped) {
  EXPECT_TRUE(augmented(ToUint8(), floats({-1, 0.4, 0.6, 300}, {1, 4}))
                  .equal(bytes({0, 0, 1, 255}, {1, 4})));
  EXPECT_TRUE(augmented(ToFloat32(), bytes({0, 255}, {1, 2})).equal(floats({0, 255}, {1, 2})));
  EXPECT_TRUE(augmented(Clip({.min = 10, .max = 20}), bytes({0, 15, 30}, {1, 3}))
                  .equal(bytes({10, 15, 20}, {1, 3})));
  EXPECT_ERROR(Clip({.min = 2, .max = 1}), "between 2 and 1");
}

TEST(ColorSpaceTest, GreyHasTheWeightsOfTheColours) {
  const auto image = colors({10, 20, 30});
  EXPECT_TRUE(augmented(Grayscale(), image).equal(bytes({18}, {1, 1, 1})));
  EXPECT_TRUE(augmented(Grayscale({.rgb = false}), image).equal(bytes({22}, {1, 1, 1})));
  EXPECT_TRUE(augmented(Grayscale({.keep_channels = true}), image).equal(colors({18, 18, 18})));
}

TEST(ColorSpaceTest, Converts) {
  const auto image = colors({255, 0, 0});
  const auto converted = [](ColorConversion conversion, const at::Tensor& x) {
    return augmented(ColorSpace(conversion), x);
  };
  EXPECT_TRUE(converted(ColorConversion::kSwapRedAndBlue, image).equal(colors({0, 0, 255})));
  EXPECT_TRUE(converted(ColorConversion::kRgbToHsv, image).equal(colors({0, 255, 255})));
  EXPECT_TRUE(converted(ColorConversion::kHsvToRgb, colors({0, 255, 255})).equal(image));
  EXPECT_TRUE(converted(ColorConversion::kBgrToHsv, image).equal(colors({120, 255, 255})));
  EXPECT_TRUE(converted(ColorConversion::kGrayToRgb, bytes({7}, {1, 1})).equal(colors({7, 7, 7})));
  EXPECT_ERROR(converted(ColorConversion::kGrayToRgb, image), "1 channel, not of 3");
}

TEST(NoiseTest, HasTheMomentsAskedFor) {
  const auto image = at::full({100, 100}, 100.f);
  const auto noise = augmented(GaussianNoise({.sigma = 5, .clip = false}), image) - image;
  EXPECT_NEAR(noise.mean().item<double>(), 0, 0.2);
  EXPECT_NEAR(noise.std().item<double>(), 5, 0.2);
  EXPECT_LE(augmented(GaussianNoise({.sigma = 200}), image).max().item<float>(), 255);
  const auto sprinkled =
      augmented(SaltPepperNoise({.white = 0.1, .black = 0.2}), image.to(at::kByte));
  EXPECT_NEAR(sprinkled.eq(255).to(at::kFloat).mean().item<double>(), 0.1, 0.02);
  EXPECT_NEAR(sprinkled.eq(0).to(at::kFloat).mean().item<double>(), 0.2, 0.02);
  EXPECT_NEAR(sprinkled.eq(100).to(at::kFloat).mean().item<double>(), 0.7, 0.02);
  EXPECT_ERROR(SaltPepperNoise({.white = 0.7, .black = 0.4}), "not shares of a whole");
  EXPECT_ERROR(GaussianNoise({.sigma = -1}), "got -1");
}

TEST(NoiseTest, JpegHurtsMoreAtLowQuality) {
  const auto image = (at::rand({32, 32, 3}, at::detail::createCPUGenerator(1)) * 255).to(at::kByte);
  const auto error = [&](int64_t quality) {
    const auto result = augmented(JpegNoise({.quality = {quality, quality}}), image);
    return (result.to(at::kFloat) - image.to(at::kFloat)).abs().mean().item<double>();
  };
  EXPECT_GT(error(10), error(100));
  EXPECT_GT(error(100), 0);
  EXPECT_ERROR(JpegNoise({.quality = {0, 100}}), "the range is 0 to 100");
  EXPECT_ERROR(augmented(JpegNoise(), at::zeros({4, 4, 2}, at::kByte)), "one channel or three");
}

TEST(ToneTest, GoldenNumbers) {
  EXPECT_TRUE(detail::posterize(bytes({0xab, 0xff, 0x0f}, {1, 3}), 4)
                  .equal(bytes({0xa0, 0xf0, 0}, {1, 3})));
  EXPECT_TRUE(
      detail::solarize(bytes({100, 128, 200}, {1, 3}), 128).equal(bytes({100, 127, 55}, {1, 3})));
  EXPECT_TRUE(
      detail::auto_contrast(bytes({10, 20, 30}, {1, 3})).equal(bytes({0, 128, 255}, {1, 3})));
  EXPECT_TRUE(detail::auto_contrast(bytes({7, 7}, {1, 2})).equal(bytes({7, 7}, {1, 2})));
  // 256 pixels of 10 and 255 of 20: none are below 10, all others below 20.
  auto two_tones = at::full({1, 511}, 10, at::kByte);
  two_tones.narrow(1, 256, 255).fill_(20);
  auto equalized = at::zeros({1, 511}, at::kByte);
  equalized.narrow(1, 256, 255).fill_(255);
  EXPECT_TRUE(detail::equalize(two_tones).equal(equalized));
  EXPECT_TRUE(detail::equalize(bytes({7, 7}, {1, 2})).equal(bytes({7, 7}, {1, 2})));
}

TEST(ToneTest, SharpnessIsAboutTheMeanOfTheNeighbourhood) {
  auto image = at::zeros({5, 5}, at::kByte);
  image[2][2] = 130;
  auto smooth = at::zeros({5, 5}, at::kByte);
  smooth.narrow(0, 1, 3).narrow(1, 1, 3).fill_(10);
  smooth[2][2] = 50;  // 5 / 13 of 130
  EXPECT_TRUE(detail::sharpen(image, 0).equal(smooth));
  EXPECT_TRUE(detail::sharpen(image, 1).equal(image));
  EXPECT_EQ(detail::sharpen(image, 2)[2][2].item<int>(), 210);
}

TEST(AutoAugmentTest, EveryOperationIsDrawn) {
  // An image of which every operation makes another one.
  const auto image =
      (at::rand({20, 20, 3}, at::detail::createCPUGenerator(1)) * 100 + 50).to(at::kByte);
  std::set<std::string> results;
  for (int seed = 0; seed < 300; ++seed) {
    const auto result = augmented(RandAugment({.operations = 1, .magnitude = 15}), image, seed);
    results.insert(std::string(static_cast<const char*>(result.data_ptr()), result.numel()));
  }
  // Nine operations have two directions, and five only one.
  EXPECT_EQ(results.size(), 9 * 2 + 5);
}

TEST(AutoAugmentTest, JitterOfNothingIsNothing) {
  const auto image = colors({10, 20, 30});
  EXPECT_TRUE(augmented(ColorJitter({}), image).equal(image));
  EXPECT_ERROR(ColorJitter({.hue = 0.6}), "hue must be in [0, 0.5], got 0.6");
  EXPECT_ERROR(RandAugment({.magnitude = 31}), "magnitude 31 of 31");
  EXPECT_ERROR(TrivialAugment({.magnitudes = 1}), "at least two");
}

TEST(MetaTest, ChoosesByProbability) {
  const auto image = bytes({1}, {1, 1});
  const auto fixed = [](int value) {
    return MapImage([value](const at::Tensor& x) { return at::full_like(x, value); });
  };
  const ImageAugmentor choice = RandomChooseAug({fixed(2), fixed(3), fixed(4)}, {0.1, 0.2, 0.7});
  std::vector<int> counts(5);
  for (int seed = 0; seed < 2000; ++seed) ++counts[augmented(choice, image, seed).item<int>()];
  EXPECT_NEAR(counts[2], 200, 60);
  EXPECT_NEAR(counts[3], 400, 80);
  EXPECT_NEAR(counts[4], 1400, 100);
  EXPECT_ERROR(RandomChooseAug({fixed(1), fixed(2)}, {0.5, 0.6}), "add up to 1.1, not to 1");
  EXPECT_ERROR(RandomChooseAug({fixed(1)}, {0.5, 0.5}),
               "1 augmentor cannot be chosen by a list of 2 numbers");
  EXPECT_ERROR(RandomChooseAug({}), "nothing to choose from");
  // Ten tenths do not add up to 1 exactly.
  (void)RandomChooseAug(std::vector<ImageAugmentor>(10, fixed(1)), std::vector<double>(10, 0.1));
}

TEST(MetaTest, OrdersAtRandom) {
  const auto image = floats({1}, {1, 1});
  const ImageAugmentor any_order =
      RandomOrderAug({MapImage([](const at::Tensor& x) { return x + 1; }),
                      MapImage([](const at::Tensor& x) { return x * 10; })});
  std::set<float> results;
  for (int seed = 0; seed < 50; ++seed) {
    results.insert(augmented(any_order, image, seed).item<float>());
  }
  EXPECT_THAT(results, testing::ElementsAre(11, 20));
  EXPECT_ERROR(RandomApplyAug(Identity(), 1.5), "1.5 is no probability");
}

TEST(MatTest, SharesTheMemoryOfAnImage) {
  const auto image = bytes({1, 2, 3, 4, 5, 6}, {1, 2, 3});
  const cv::Mat mat = as_mat(image);
  EXPECT_EQ(mat.data, image.data_ptr());
  EXPECT_EQ(mat.channels(), 3);
  const auto part = at::arange(12, at::kByte).reshape({3, 4}).narrow(1, 1, 2);
  EXPECT_EQ(as_mat(part).at<uchar>(2, 1), 10);
  EXPECT_ERROR(as_mat(part.t()), "Call contiguous() first");
}

TEST(MatTest, AnImageOwnsTheMemoryOfItsMatrix) {
  cv::Mat mat(2, 3, CV_32FC1, cv::Scalar(5));
  const void* data = mat.data;
  const at::Tensor image = as_image(mat);
  mat.release();
  EXPECT_EQ(image.data_ptr(), data);
  EXPECT_TRUE(image.equal(at::full({2, 3, 1}, 5.f)));
  std::vector<uchar> foreign = {1, 2};
  const at::Tensor copy = as_image(cv::Mat(1, 2, CV_8U, foreign.data()), false);
  EXPECT_NE(copy.data_ptr(), foreign.data());
  EXPECT_TRUE(copy.equal(bytes({1, 2}, {1, 2})));
  EXPECT_ERROR(as_image(cv::Mat(1, 1, CV_64F)), "type CV_64FC1 is no image");
}

TEST(MatTest, ServesAnAugmentorOfOnesOwn) {
  const ImageAugmentor median = MapImage([](const at::Tensor& image) {
    return map_mat(image, [](const cv::Mat& in) {
      cv::Mat out;
      cv::medianBlur(in, out, 3);
      return out;
    });
  });
  auto image = at::zeros({3, 3}, at::kByte);
  image[1][1] = 255;
  EXPECT_EQ(augmented(median, image).sum().item<int>(), 0);
}

}  // namespace
}  // namespace tensorpack::imgaug
