// SPDX-License-Identifier: Apache-2.0
// Windows that reach over the border of an image.
#include "tensorpack/models/pooling.h"

#include <ATen/ATen.h>

#include "tests/models/fixture.h"

namespace tensorpack::test {
namespace {

at::Tensor image_4x4() { return at::arange(16, at::kFloat).view({1, 1, 4, 4}); }

TEST_F(LayersTest, MaxPoolingWithSamePaddingRoundsTheSizeUp) {
  train();
  const at::Tensor x = at::randn({2, 3, 5, 7});
  const auto y = MaxPooling("a", x, 2, {.padding = Padding::same()});
  EXPECT_EQ(y.sizes(), (at::IntArrayRef{2, 3, 3, 4}));
  EXPECT_TRUE(at::equal(y, at::max_pool2d(x, 2, 2, 0, 1, /*ceil_mode=*/true)));
  EXPECT_TRUE(at::equal(MaxPooling("b", x, 3, {.strides = 1, .padding = Padding::same()}),
                        at::max_pool2d(x, 3, 1, 1)));
}

TEST_F(LayersTest, PaddingIsNeverTheLargestValue) {
  train();
  const at::Tensor x = -1 - image_4x4();
  const auto y = MaxPooling("a", x, 2, {.strides = 1, .padding = Padding::same()});
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(y[0][0][3][3].item<float>(), -16);
}

TEST_F(LayersTest, AvgPoolingWithSamePaddingDoesNotCountIt) {
  train();
  const at::Tensor ones = at::ones({1, 2, 4, 4});
  for (const int64_t size : {2, 3}) {
    const auto name = "p" + std::to_string(size);
    const auto y = AvgPooling(name, ones, size, {.strides = 1, .padding = Padding::same()});
    EXPECT_TRUE(at::allclose(y, ones)) << size;
  }
  const auto y = AvgPooling("a", image_4x4(), 2, {.strides = 1, .padding = Padding::same()});
  EXPECT_FLOAT_EQ(y[0][0][0][3].item<float>(), 5);   // of 3 and 7
  EXPECT_FLOAT_EQ(y[0][0][3][3].item<float>(), 15);  // of itself
}

TEST_F(LayersTest, AvgPoolingCountsPaddingAsItIsTold) {
  train();
  const at::Tensor x = image_4x4() + 1;
  const auto pool = [&](const char* name, AvgPoolingOptions options) {
    options.strides = 1;
    return AvgPooling(name, x, 3, options);
  };
  const auto counted = at::avg_pool2d(x, 3, 1, 1);
  const auto uncounted = at::avg_pool2d(x, 3, 1, 1, false, /*count_include_pad=*/false);
  EXPECT_TRUE(at::equal(pool("a", {.padding = Padding::of(1)}), counted));
  EXPECT_TRUE(at::equal(pool("b", {.padding = Padding::of(1), .count_padding = false}), uncounted));
  EXPECT_TRUE(at::equal(pool("c", {.padding = Padding::same()}), uncounted));
  EXPECT_TRUE(at::equal(pool("d", {.padding = Padding::same(), .count_padding = true}), counted));
  const auto uneven =
      AvgPooling("e", x, 2, {.strides = 1, .padding = Padding::same(), .count_padding = true});
  EXPECT_FLOAT_EQ(uneven[0][0][3][3].item<float>(), 4);  // 16, among three zeros
}

TEST_F(LayersTest, ArgScopeReachesPooling) {
  train();
  const ArgScope max(MaxPoolingOptions{.strides = 1, .padding = Padding::same()});
  const ArgScope avg(AvgPoolingOptions{.strides = 2});
  const at::Tensor x = at::randn({1, 1, 8, 8});
  EXPECT_EQ(MaxPooling("a", x, 3).sizes(), x.sizes());
  EXPECT_EQ(MaxPooling("b", x, 3, {.strides = 2}).size(2), 4);
  EXPECT_EQ(AvgPooling("c", x, 4).size(2), 3);
}

}  // namespace
}  // namespace tensorpack::test
