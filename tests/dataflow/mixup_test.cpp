// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/mixup.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/map.h"
#include "tests/support/dataflow_contract.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

// Image i is full of i * 10, and its label is i.
DataPoint batch_of(int64_t n, at::ScalarType type = at::kFloat) {
  const auto labels = at::arange(n, at::kLong);
  return {(labels * 10).to(type).reshape({n, 1, 1, 1}).expand({n, 8, 6, 2}).contiguous(), labels};
}

TEST(MixupTest, ImagesAndLabelsAreMixedAlike) {
  for (int seed = 0; seed < 20; ++seed) {
    Rng rng(1, seed);
    const DataPoint mixed = Mixup({.alpha = 1, .classes = 4})(batch_of(4), rng);
    ASSERT_EQ(mixed.size(), 2U);
    EXPECT_EQ(mixed[1].sizes(), at::IntArrayRef({4, 4}));
    EXPECT_TRUE(mixed[1].sum(1).allclose(at::ones({4})));
    // An image has ten times the mean of the labels it is made of.
    const auto expected = mixed[1].matmul(at::arange(4, at::kFloat)) * 10;
    EXPECT_TRUE(mixed[0].select(3, 0).select(2, 0).select(1, 0).allclose(expected, 1e-4, 1e-4));
    EXPECT_TRUE(mixed[0].eq(mixed[0].narrow(1, 0, 1).narrow(2, 0, 1)).all().item<bool>());
  }
}

TEST(MixupTest, WithoutClassesLabelsComeInPairs) {
  Rng rng(2, 0);
  const DataPoint mixed = Mixup({.alpha = 1})(batch_of(4), rng);
  ASSERT_EQ(mixed.size(), 4U);
  EXPECT_TRUE(mixed[1].equal(at::arange(4)));
  const auto mean = mixed[1] * mixed[3] + mixed[2] * (1 - mixed[3]);
  EXPECT_TRUE((mean * 10).allclose(mixed[0].select(3, 0).select(2, 0).select(1, 0)));
}

TEST(MixupTest, BytesStayBytes) {
  Rng rng(3, 0);
  const DataPoint mixed = Mixup({.alpha = 1})(batch_of(4, at::kByte), rng);
  EXPECT_EQ(mixed[0].scalar_type(), at::kByte);
  const auto mean = (mixed[1] * mixed[3] + mixed[2] * (1 - mixed[3])) * 10;
  EXPECT_TRUE(mean.round().to(at::kByte).equal(mixed[0].select(3, 0).select(2, 0).select(1, 0)));
}

TEST(MixupTest, SharesAreDistributedAsBeta) {
  // Beta(a, a) has mean 1 / 2 and variance 1 / (4 * (2 a + 1)).
  for (const double alpha : {0.2, 1.0, 3.0}) {
    const auto mix = Mixup({.alpha = alpha});
    std::vector<double> shares;
    for (int seed = 0; seed < 4000; ++seed) {
      Rng rng(4, seed);
      shares.push_back(mix(batch_of(1), rng)[3].item<double>());
    }
    const auto drawn = at::tensor(shares);
    EXPECT_NEAR(drawn.mean().item<double>(), 0.5, 0.03) << alpha;
    EXPECT_NEAR(drawn.var().item<double>(), 1 / (4 * (2 * alpha + 1)), 0.008) << alpha;
  }
}

TEST(MixupTest, BatchesThatAreNotMixedHaveTheSameForm) {
  Rng rng(5, 0);
  const DataPoint left = Mixup({.classes = 4, .probability = 0})(batch_of(4), rng);
  EXPECT_TRUE(left[0].equal(batch_of(4)[0]));
  EXPECT_TRUE(left[1].equal(at::eye(4)));
}

TEST(CutMixTest, LabelsAreSharesOfTheArea) {
  for (const bool channels_last : {true, false}) {
    for (int seed = 0; seed < 30; ++seed) {
      Rng rng(6, seed);
      DataPoint batch = batch_of(5);
      if (!channels_last) batch[0] = batch[0].permute({0, 3, 1, 2}).contiguous();
      const DataPoint before = {batch[0].clone(), batch[1]};
      const DataPoint mixed = CutMix({.classes = 5, .channels_last = channels_last})(batch, rng);
      EXPECT_TRUE(batch[0].equal(before[0])) << "changed the batch it was given";
      EXPECT_TRUE(mixed[1].sum(1).allclose(at::ones({5})));
      // Every pixel is of one image, and there are as many of each as its label says.
      const auto means = mixed[0].mean({1, 2, 3});
      EXPECT_TRUE(means.allclose(mixed[1].matmul(at::arange(5, at::kFloat)) * 10, 1e-4, 1e-4));
      EXPECT_EQ(mixed[0].remainder(10).abs().sum().item<float>(), 0);
    }
  }
}

TEST(CutMixTest, TheCutIsARectangleOfImagesOnly) {
  Rng rng(7, 0);
  const auto cut = CutMix()(batch_of(2), rng);
  // Both channels come from the same image.
  EXPECT_TRUE(cut[0].select(3, 0).equal(cut[0].select(3, 1)));
}

// Half of the area of 10 x 10 is 7.07 x 7.07, unless the edge cuts it off.
TEST(CutMixTest, TheCutHasTheDrawnSize) {
  const auto half = CutMix({.alpha = 1e6});
  int64_t highest = 0;
  int64_t widest = 0;
  for (int seed = 0; seed < 100; ++seed) {
    Rng rng(8, seed);
    const at::Tensor images =
        at::arange(2, at::kFloat).reshape({2, 1, 1, 1}).expand({2, 10, 10, 1});
    const auto cut = half(DataPoint{images.contiguous(), at::arange(2)}, rng)[0].select(3, 0);
    const at::Tensor changed = cut != images.select(3, 0);
    highest = std::max(highest, changed.any(2).sum(1).max().item<int64_t>());
    widest = std::max(widest, changed.any(1).sum(1).max().item<int64_t>());
  }
  EXPECT_EQ(highest, 7);
  EXPECT_EQ(widest, 7);
}

TEST(MixupTest, WorksBehindBatchAndRepeats) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 8; ++i)
    points.push_back({at::full({4, 4, 3}, i), at::scalar_tensor(i, at::kLong)});
  for (DataPoint& point : points) point[0] = point[0].to(at::kFloat);
  expect_passes_repeat([&] {
    return FromList(points) | batch(4) | map(CutMix({.classes = 8}), {.seed = 3}) |
           map([](DataPoint point) { return DataPoint{point[0]}; });
  });
}

TEST(MixupTest, RejectsWhatIsNoBatch) {
  Rng rng(8, 0);
  EXPECT_ERROR(Mixup({.alpha = 0}), "alpha must be positive, got 0");
  EXPECT_ERROR(CutMix({.probability = 2}), "2 is no probability");
  EXPECT_ERROR(Mixup()({at::zeros({4, 2})}, rng), "there is no component 1");
  EXPECT_ERROR(Mixup()({at::zeros({4, 2}), at::zeros({4})}, rng), "labels Float [4] are no batch");
  EXPECT_ERROR(Mixup({.classes = 3})(batch_of(4), rng), "labels are 0 to 3, but there are 3");
  EXPECT_ERROR(CutMix()({at::zeros({4, 2}), at::arange(4)}, rng), "four dimensions");
}

}  // namespace
}  // namespace tensorpack::test
