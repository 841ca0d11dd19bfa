// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/augment.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <optional>
#include <set>

#include "tensorpack/checkpoint/generator_state.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/models/symbolic.h"
#include "tensorpack/session/session.h"
#include "tests/models/fixture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using at::Tensor;

// All of them, one behind the other.
std::pair<Tensor, Tensor> augment(const Tensor& images, const Tensor& labels) {
  Tensor x = random_flip(random_crop(images, {.padding = 2}));
  x = color_jitter(x, {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 20, .max = 1});
  x = normalize(x, {0.5, 0.4, 0.3}, {0.2, 0.3, 0.4});
  return mixup(x, tensorpack::one_hot(labels, 5).to(at::kFloat), {.alpha = 0.5});
}

Tensor image_batch(uint64_t seed) {
  return at::rand({4, 3, 6, 8}, at::detail::createCPUGenerator(seed));
}

using Augment = std::pair<Tensor, Tensor> (*)(const Tensor& images, const Tensor& labels);

struct Training {
  explicit Training(ExecutorKind executor, Augment function = augment)
      : function(function), session(graph, {.executor = executor}) {}

  Augment function;

  Graph graph;
  Op step = graph.define({
      .name = "step",
      .inputs = {{"image", {4, 3, 6, 8}}, {"label", {4}, torch::kLong}},
      .body = [this](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const auto [image, label] = function(in[0], in[1]);
        return {{"augmented", image}, {"mixed", label}};
      },
  });
  Session session;

  std::vector<Tensor> run(int from, int to) {
    std::vector<Tensor> results;
    for (int i = from; i < to; ++i) {
      const auto labels = at::tensor({0, 1, 2, 3}, at::kLong);
      for (const Tensor& result : session.run(step, {"augmented", "mixed"},
                                              {{"image", image_batch(i + 1)}, {"label", labels}})) {
        results.push_back(result.clone());
      }
    }
    return results;
  }
};

bool equal(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Tensor& x, const Tensor& y) { return x.equal(y); });
}

struct AugmentCase {
  const char* name;
  Augment function;
};
void PrintTo(const AugmentCase& c, std::ostream* out) { *out << c.name; }

class EveryTowerAugmentTest : public testing::TestWithParam<AugmentCase> {};

TEST_P(EveryTowerAugmentTest, ReplayDrawsWhatEagerDraws) {
  const auto eager = Training(ExecutorKind::kEager, GetParam().function).run(0, 4);
  const auto replay = Training(ExecutorKind::kReplay, GetParam().function).run(0, 4);
  EXPECT_TRUE(equal(eager, replay));
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryTowerAugmentTest,
    testing::ValuesIn(std::vector<AugmentCase>{
        {"RandomCrop",
         [](const Tensor& x, const Tensor& y) { return std::pair(random_crop(x), y); }},
        {"RandomFlip",
         [](const Tensor& x, const Tensor& y) { return std::pair(random_flip(x), y); }},
        {"Normalize",
         [](const Tensor& x, const Tensor& y) {
           return std::pair(normalize(x, {0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}), y);
         }},
        {"ColorJitter",
         [](const Tensor& x, const Tensor& y) {
           return std::pair(color_jitter(x, {.brightness = 1, .contrast = 1, .saturation = 1}), y);
         }},
        {"Hue", [](const Tensor& x,
                   const Tensor& y) { return std::pair(color_jitter(x, {.hue = 90}), y); }},
        {"Mixup",
         [](const Tensor& x, const Tensor& y) {
           return mixup(x, tensorpack::one_hot(y, 5).to(at::kFloat));
         }},
        {"CutMix",
         [](const Tensor& x, const Tensor& y) {
           return cutmix(x, tensorpack::one_hot(y, 5).to(at::kFloat));
         }},
        {"All", augment},
    }),
    [](const auto& info) { return info.param.name; });

TEST(TowerAugmentTest, EveryRunDrawsAnew) {
  Training training(ExecutorKind::kReplay);
  const auto twice = [&] {
    return training.session
        .run(training.step, {"augmented"},
             {{"image", image_batch(1)}, {"label", at::tensor({0, 1, 2, 3}, at::kLong)}})[0]
        .clone();
  };
  const Tensor first = twice();
  EXPECT_FALSE(first.equal(twice()));
}

TEST(TowerAugmentTest, GoesOnFromACheckpointAsIfItHadNotStopped) {
  Training whole(ExecutorKind::kReplay);
  (void)whole.run(0, 3);
  const StateTexts state = save_generators(whole.graph);
  const auto rest = whole.run(3, 6);

  Training resumed(ExecutorKind::kReplay);
  (void)resumed.run(0, 1);  // draws other numbers
  restore_generators(resumed.graph, state);
  EXPECT_TRUE(equal(resumed.run(3, 6), rest));
}

class AugmentTest : public LayersTest {
 protected:
  void SetUp() override { at::manual_seed(1); }
};

TEST_F(AugmentTest, NothingChangesOutsideOfTraining) {
  predict();
  const Tensor x = image_batch(1);
  EXPECT_TRUE(random_crop(x).equal(x));
  EXPECT_TRUE(random_flip(x, {.probability = 1}).equal(x));
  EXPECT_TRUE(color_jitter(x, {.brightness = 1}).equal(x));
  const auto [images, labels] = mixup(x, at::eye(4));
  EXPECT_TRUE(images.equal(x));
  EXPECT_TRUE(labels.equal(at::eye(4)));
  EXPECT_TRUE(color_jitter(x, {.hue = 90}).equal(x));
  EXPECT_TRUE(cutmix(x, at::eye(4)).first.equal(x));
}

TEST_F(AugmentTest, CropTakesEachPlaceOfThePaddedImage) {
  train();
  // Values tell rows and columns, counted from 1, so that 0 is padding.
  const Tensor rows = at::arange(1, 5, at::kFloat).reshape({4, 1}).expand({4, 5});
  const Tensor columns = at::arange(1, 6, at::kFloat).expand({4, 5});
  const Tensor x = at::stack({rows, columns}).expand({300, 2, 4, 5});
  const Tensor y = random_crop(x, {.padding = 1});
  ASSERT_EQ(y.sizes(), x.sizes());
  std::set<std::pair<int, int>> places;
  const Tensor padded = at::constant_pad_nd(x[0], {1, 1, 1, 1});
  for (int64_t i = 0; i < y.size(0); ++i) {
    // The pixel in the middle is never padding.
    const int top = y[i][0][1][1].item<int>() - 1;
    const int left = y[i][1][1][1].item<int>() - 1;
    places.emplace(top, left);
    EXPECT_TRUE(y[i].equal(padded.narrow(1, top, 4).narrow(2, left, 5)));
  }
  EXPECT_EQ(places.size(), 9U);
}

TEST_F(AugmentTest, FlipMirrorsSomeImages) {
  train();
  const Tensor x = image_batch(2).narrow(0, 0, 1).expand({400, 3, 6, 8});
  const Tensor y = random_flip(x, {.probability = 0.25});
  int flipped = 0;
  for (int64_t i = 0; i < x.size(0); ++i) {
    const bool is_flipped = y[i].equal(x[i].flip({2}));
    flipped += is_flipped;
    EXPECT_TRUE(is_flipped || y[i].equal(x[i]));
  }
  EXPECT_NEAR(flipped, 100, 35);
  EXPECT_TRUE(random_flip(x, {.probability = 1, .vertical = true}).equal(x.flip({2})));
}

TEST_F(AugmentTest, NormalizeSubtractsAndDivides) {
  train();
  const Tensor x = at::tensor({1.f, 2.f}).reshape({1, 2, 1, 1});
  EXPECT_TRUE(
      normalize(x, {0, 4}, {0.5, 4}).allclose(at::tensor({2.f, -0.5f}).reshape({1, 2, 1, 1})));
  EXPECT_ERROR(normalize(x, {1}, {1}), "images of 2 channels need as many");
  EXPECT_ERROR(normalize(x, {1, 1}, {1, 0}), "a deviation cannot be 0");
}

TEST_F(AugmentTest, JitterHasOneFactorForEachImage) {
  train();
  const Tensor x = image_batch(3);
  const Tensor factors = color_jitter(x, {.brightness = 0.5}) / x;
  EXPECT_TRUE(factors.allclose(factors.narrow(1, 0, 1).narrow(2, 0, 1).narrow(3, 0, 1)));
  EXPECT_TRUE(factors.ge(0.5 - 1e-5).all().item<bool>() && factors.le(1.5).all().item<bool>());
  EXPECT_FALSE(factors[0].allclose(factors[1]));
  // Contrast keeps the mean of grey, saturation the grey of each pixel.
  const auto grey = [](const Tensor& images) {
    return 0.299 * images.select(1, 0) + 0.587 * images.select(1, 1) + 0.114 * images.select(1, 2);
  };
  const Tensor contrast = color_jitter(x, {.contrast = 0.5});
  EXPECT_TRUE(grey(contrast).mean({1, 2}).allclose(grey(x).mean({1, 2}), 1e-4, 1e-4));
  EXPECT_FALSE(contrast.allclose(x));
  const Tensor saturation = color_jitter(x, {.saturation = 0.5});
  EXPECT_TRUE(grey(saturation).allclose(grey(x), 1e-4, 1e-4));
  EXPECT_FALSE(saturation.allclose(x));
  EXPECT_LE(color_jitter(x, {.brightness = 3, .max = 1}).max().item<float>(), 1);
}

// Of a colour: its hue in degrees, or nothing for grey.
std::optional<double> hue_of(double r, double g, double b) {
  const double value = std::max({r, g, b});
  const double chroma = value - std::min({r, g, b});
  if (chroma == 0) return std::nullopt;
  const double hue = value == r   ? (g - b) / chroma
                     : value == g ? (b - r) / chroma + 2
                                  : (r - g) / chroma + 4;
  return std::fmod(60 * hue + 360, 360);
}

TEST_F(AugmentTest, HueTurnsAllColoursOfAnImageByOneAngle) {
  train();
  const Tensor x = image_batch(3) * 255;
  const Tensor y = color_jitter(x, {.hue = 50});
  EXPECT_TRUE(y.amax(1).allclose(x.amax(1), 1e-4, 1e-2)) << "value";
  EXPECT_TRUE(y.amin(1).allclose(x.amin(1), 1e-4, 1e-2)) << "and chroma stay";
  std::set<int> angles;
  for (int64_t n = 0; n < x.size(0); ++n) {
    std::optional<double> angle;
    for (int64_t pixel = 0; pixel < 48; ++pixel) {
      const auto hue = [&](const Tensor& images) {
        const Tensor color = images[n].flatten(1).select(1, pixel).to(at::kDouble);
        return *hue_of(color[0].item<double>(), color[1].item<double>(), color[2].item<double>());
      };
      const double turned = std::remainder(hue(y) - hue(x), 360);
      if (!angle) angle = turned;
      EXPECT_NEAR(turned, *angle, 0.05);
    }
    EXPECT_LE(std::abs(*angle), 50.05);
    angles.insert(static_cast<int>(std::round(*angle)));
  }
  EXPECT_EQ(angles.size(), 4U) << "one angle for each image";
  const Tensor grey = at::full({1, 3, 2, 2}, 0.5);
  EXPECT_TRUE(color_jitter(grey, {.hue = 180}).equal(grey));
}

TEST_F(AugmentTest, CutMixTakesARectangleFromTheImageBefore) {
  train();
  // Image i is full of i + 1.
  const Tensor x = at::arange(1, 4, at::kFloat).reshape({3, 1, 1, 1}).expand({3, 2, 6, 8});
  std::set<double> shares;
  for (int i = 0; i < 200; ++i) {
    const auto [images, labels] = cutmix(x, at::eye(3));
    const Tensor cut = images[0][0] == 3;
    for (int64_t n = 0; n < 3; ++n) {
      const double before = n == 0 ? 3 : static_cast<double>(n);
      const Tensor expected = at::where(cut, at::full({6, 8}, before, at::kFloat),
                                        at::full({6, 8}, n + 1.0, at::kFloat));
      EXPECT_TRUE(images[n].equal(expected.expand({2, 6, 8})));
    }
    const double share = 1 - cut.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(labels[1][1].item<double>(), share, 1e-6);
    EXPECT_NEAR(labels[1][0].item<double>(), 1 - share, 1e-6);
    // A rectangle: every row of it has the same columns.
    const Tensor columns = cut.any(0);
    EXPECT_TRUE(cut.equal(cut.any(1).unsqueeze(1).logical_and(columns)));
    shares.insert(share);
  }
  EXPECT_GT(shares.size(), 15U);
  EXPECT_GT(*shares.rbegin() - *shares.begin(), 0.6);
}

TEST_F(AugmentTest, MixupMixesImagesAndLabelsAlike) {
  train();
  // Image i is full of its label.
  const Tensor x = at::arange(4, at::kFloat).reshape({4, 1, 1, 1}).expand({4, 1, 2, 2});
  const auto [images, labels] = mixup(x, at::eye(4), {.alpha = 1});
  EXPECT_TRUE(labels.sum(1).allclose(at::ones({4})));
  EXPECT_TRUE(images.flatten(1).select(1, 0).allclose(labels.matmul(at::arange(4, at::kFloat))));
  const float share = labels[0][0].item<float>();
  EXPECT_TRUE(share > 0 && share < 1);
  EXPECT_NEAR(labels[0][3].item<float>(), 1 - share, 1e-6);
}

TEST_F(AugmentTest, SharesOfMixupAreDistributedAsBeta) {
  train();
  // Beta(a, a) has mean 1 / 2 and variance 1 / (4 * (2 a + 1)).
  for (const double alpha : {0.01, 0.2, 1.0, 3.0}) {
    std::vector<double> shares;
    for (int i = 0; i < 1500; ++i) {
      shares.push_back(
          mixup(at::ones({2, 1}), at::eye(2), {.alpha = alpha}).second[0][0].item<double>());
    }
    const Tensor drawn = at::tensor(shares);
    EXPECT_NEAR(drawn.mean().item<double>(), 0.5, 0.05) << alpha;
    EXPECT_NEAR(drawn.var().item<double>(), 1 / (4 * (2 * alpha + 1)), 0.012) << alpha;
  }
}

TEST_F(AugmentTest, SaysWhatIsWrong) {
  train();
  EXPECT_ERROR(random_crop(at::zeros({2, 3})), "[n, channels, height, width]");
  EXPECT_ERROR(random_crop(at::zeros({1, 3, 4, 4}), {.padding = -1}), "got -1");
  EXPECT_ERROR(random_flip(at::zeros({1, 3, 4, 4}, at::kByte)), "Byte [1, 3, 4, 4]");
  EXPECT_ERROR(color_jitter(at::zeros({1, 1, 4, 4}), {.saturation = 1}), "three colours");
  EXPECT_ERROR(color_jitter(at::zeros({1, 1, 4, 4}), {.hue = 1}), "three colours");
  EXPECT_ERROR(color_jitter(at::zeros({1, 3, 4, 4}), {.hue = -1}), "hue -1 must not be negative");
  EXPECT_ERROR(cutmix(at::zeros({2, 3}), at::eye(2)), "[n, channels, height, width]");
  EXPECT_ERROR(cutmix(at::zeros({2, 3, 4, 4}), at::arange(2)), "one_hot() makes them");
  EXPECT_ERROR(mixup(at::zeros({2, 3}), at::arange(2)), "one_hot() makes them");
  EXPECT_ERROR(mixup(at::zeros({2, 3}), at::eye(2), {.alpha = 0}), "alpha must be positive");
}

}  // namespace
}  // namespace tensorpack::test
