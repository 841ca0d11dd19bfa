// SPDX-License-Identifier: Apache-2.0
// Convolutions other than Conv2D against libtorch's.
#include <ATen/ATen.h>

#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv1d.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/conv2d_transpose.h"
#include "tests/models/fixture.h"

namespace tensorpack::test {
namespace {

using testing::ElementsAre;

TEST_F(LayersTest, Conv2DTransposeWithExplicitPaddingIsThatOfLibtorch) {
  train();
  const at::Tensor x = at::randn({2, 3, 5, 4});
  const at::Tensor y = Conv2DTranspose(
      "up", x, {.filters = 6, .kernel_size = 4, .strides = 2, .padding = Padding::of(1)});
  EXPECT_THAT(shape_of("up/W"), ElementsAre(3, 6, 4, 4));
  EXPECT_THAT(shape_of("up/b"), ElementsAre(6));
  EXPECT_TRUE(at::equal(y, at::conv_transpose2d(x, variable("up/W"), variable("up/b"), 2, 1)));
}

TEST_F(LayersTest, Conv2DTransposeHasTheSizesOfTheReference) {
  train();
  int index = 0;
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t kernel : {1, 2, 3, 4, 5}) {
      const at::Tensor x = at::randn({1, 2, 5, 4});
      const std::string suffix = std::to_string(index++);
      const at::Tensor same = Conv2DTranspose(
          "same" + suffix, x, {.filters = 1, .kernel_size = kernel, .strides = stride});
      EXPECT_THAT(same.sizes().vec(), ElementsAre(1, 1, 5 * stride, 4 * stride));
      const at::Tensor valid = Conv2DTranspose(
          "valid" + suffix, x,
          {.filters = 1, .kernel_size = kernel, .strides = stride, .padding = Padding::valid()});
      const int64_t more = std::max<int64_t>(kernel - stride, 0);
      EXPECT_THAT(valid.sizes().vec(), ElementsAre(1, 1, 5 * stride + more, 4 * stride + more));
    }
  }
}

TEST_F(LayersTest, SameConv2DTransposeIsTheGradientOfSameConv2D) {
  train();
  int index = 0;
  for (int64_t stride : {1, 2, 3}) {
    for (int64_t kernel : {1, 2, 3, 4, 5}) {
      const std::string suffix = std::to_string(index++);
      const at::Tensor small = at::randn({1, 2, 4, 4});
      const at::Tensor big = at::randn({1, 3, 4 * stride, 4 * stride}).requires_grad_(true);
      const at::Tensor down =
          Conv2D("down" + suffix, big,
                 {.filters = 2, .kernel_size = kernel, .strides = stride, .use_bias = false});
      const at::Tensor weight = variable("down" + suffix + "/W").detach();
      const at::Tensor up = Conv2DTranspose("up" + suffix, small,
                                            {.filters = 3,
                                             .kernel_size = kernel,
                                             .strides = stride,
                                             .use_bias = false,
                                             .kernel_init = init::from(weight)});
      (down * small).sum().backward();
      EXPECT_TRUE(at::allclose(up, big.grad(), 1e-4, 1e-5)) << stride << ' ' << kernel;
    }
  }
}

TEST_F(LayersTest, ConvolutionsTakeAnEmptyBatch) {
  const at::Tensor x = at::zeros({0, 3, 8, 8});
  for (const bool trains : {true, false}) {
    trains ? train() : predict();
    const at::Tensor y = BatchNorm("bn", Conv2D("conv", x, {.filters = 8, .kernel_size = 3}));
    EXPECT_THAT(y.sizes().vec(), ElementsAre(0, 8, 8, 8));
    const at::Tensor up = Conv2DTranspose("up", y, {.filters = 2, .kernel_size = 3, .strides = 2});
    EXPECT_THAT(up.sizes().vec(), ElementsAre(0, 2, 16, 16));
    if (trains) up.sum().backward();
  }
  EXPECT_TRUE(at::equal(variable("conv/W").grad(), at::zeros({8, 3, 3, 3})));
}

TEST_F(LayersTest, DepthwiseConv2DHasFiltersOfItsOwnForEachChannel) {
  train();
  const at::Tensor x = at::randn({2, 3, 6, 6});
  const at::Tensor y = DepthwiseConv2D("dw", x, {.kernel_size = 3, .channel_multiplier = 2});
  EXPECT_THAT(shape_of("dw/W"), ElementsAre(6, 1, 3, 3));
  EXPECT_TRUE(at::equal(y, at::conv2d(x, variable("dw/W"), variable("dw/b"), 1, 1, 1, 3)));
}

TEST_F(LayersTest, Conv1DIsThatOfLibtorch) {
  train();
  const at::Tensor x = at::randn({2, 4, 9});
  const at::Tensor y =
      Conv1D("conv", x, {.filters = 6, .kernel_size = 3, .dilation = 2, .groups = 2});
  EXPECT_THAT(shape_of("conv/W"), ElementsAre(6, 2, 3));
  EXPECT_TRUE(at::equal(
      y, at::conv1d(x, variable("conv/W"), variable("conv/b"), 1, at::IntArrayRef{2}, 2, 2)));
  // An odd number of zeros: one more on the right, as Tensorflow pads.
  const at::Tensor even = Conv1D("even", x, {.filters = 1, .kernel_size = 4, .strides = 2});
  EXPECT_TRUE(at::equal(
      even, at::conv1d(at::constant_pad_nd(x, {1, 2}), variable("even/W"), variable("even/b"), 2)));
}

}  // namespace
}  // namespace tensorpack::test
