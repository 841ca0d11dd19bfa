// SPDX-License-Identifier: Apache-2.0
// Convolutions by kernels of cuDNN that were chosen here, against libtorch's.
#include "tensorpack/cuda/convolutions.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>

#include "tensorpack/cuda/kernels/convolution.h"
#include "tensorpack/session/kernel_settings.h"
#include "tensorpack/utils/fs.h"
#include "tests/cuda/device.h"

namespace tensorpack::cuda {
namespace {

struct Case {
  std::vector<int64_t> image = {4, 16, 9, 7};
  std::vector<int64_t> weight = {24, 16, 3, 3};
  ConvolutionGeometry geometry = {};
};

ConvolutionGeometry geometry(std::vector<int64_t> stride, std::vector<int64_t> padding,
                             std::vector<int64_t> dilation = {1, 1}) {
  return {.stride = std::move(stride),
          .padding = std::move(padding),
          .dilation = std::move(dilation),
          .output_padding = {0, 0}};
}

ConvolutionGeometry transposed(std::vector<int64_t> stride, std::vector<int64_t> padding,
                               std::vector<int64_t> output_padding) {
  ConvolutionGeometry made = geometry(std::move(stride), std::move(padding));
  made.transposed = true;
  made.output_padding = std::move(output_padding);
  return made;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {.geometry = geometry({1, 1}, {1, 1})},
      {.geometry = geometry({2, 1}, {0, 2})},
      {.geometry = geometry({1, 1}, {2, 2}, {2, 2})},
      {.weight = {24, 16, 1, 1}, .geometry = geometry({1, 1}, {0, 0})},
      {.image = {3, 5, 11, 13}, .weight = {7, 5, 5, 3}, .geometry = geometry({2, 2}, {2, 1})},
      {.image = {2, 1, 8, 8}, .weight = {4, 1, 3, 3}, .geometry = geometry({1, 1}, {1, 1})},
      {.image = {1, 8, 1, 1}, .weight = {8, 8, 1, 1}, .geometry = geometry({1, 1}, {0, 0})},
      {.weight = {16, 24, 5, 5}, .geometry = transposed({2, 2}, {2, 2}, {1, 1})},
      {.weight = {16, 3, 4, 4}, .geometry = transposed({2, 2}, {1, 1}, {0, 0})},
  };
  return all;
}

class ConvolutionsTest : public test::CudaTest {
 protected:
  static void expect_close(const at::Tensor& values, const at::Tensor& expected, double tolerance) {
    ASSERT_EQ(values.sizes(), expected.sizes());
    EXPECT_EQ(values.strides(), expected.strides());
    const at::Tensor exact = expected.to(at::kDouble);
    EXPECT_LE((values.to(at::kDouble) - exact).norm().item<double>(),
              tolerance * (1e-6 + exact.norm().item<double>()));
  }

  static at::Tensor random(at::IntArrayRef sizes, at::ScalarType type) {
    return at::randn(sizes, at::TensorOptions(at::kCUDA)).to(type);
  }

  static void expect_libtorchs_results(at::ScalarType type, bool channels_last, double tolerance) {
    for (const Case& of : cases()) {
      ConvolutionGeometry geometry = of.geometry;
      geometry.channels_last = channels_last;
      const at::Tensor image = random(of.image, type).contiguous(format_of(geometry));
      const at::Tensor weight = random(of.weight, type).contiguous(format_of(geometry));
      const at::Tensor bias = random({geometry.transposed ? of.weight[1] : of.weight[0]}, type);
      const at::Tensor expected = libtorch_convolution(image, weight, bias, geometry);
      expect_close(convolution(image, weight, bias, geometry), expected, tolerance);
      const at::Tensor grad = random(expected.sizes(), type);  // in the other format, perhaps
      const auto [x, w, b] =
          convolution_backward(grad, image, weight, geometry, {true, true, true});
      const auto [of_x, of_w, of_b] =
          libtorch_convolution_backward(grad, image, weight, geometry, {true, true, true});
      expect_close(x, of_x, tolerance);
      expect_close(w, of_w, tolerance);
      expect_close(b, of_b, tolerance);
    }
  }
};

TEST_F(ConvolutionsTest, AreLibtorchsInFloat32) {
  const HoldKernelSettings settings({});
  for (const bool channels_last : {true, false}) {
    expect_libtorchs_results(at::kFloat, channels_last, 1e-5);
  }
}

TEST_F(ConvolutionsTest, AreLibtorchsInTf32AndIn16Bits) {
  const HoldKernelSettings settings({.tf32 = true});
  for (const bool channels_last : {true, false}) {
    expect_libtorchs_results(at::kFloat, channels_last, 2e-3);
    expect_libtorchs_results(at::kHalf, channels_last, 2e-3);
    expect_libtorchs_results(at::kBFloat16, channels_last, 2e-2);
  }
}

TEST_F(ConvolutionsTest, NeedNoBias) {
  const ConvolutionGeometry plain = geometry({1, 1}, {1, 1});
  const at::Tensor image = random({2, 8, 6, 6}, at::kFloat);
  const at::Tensor weight = random({8, 8, 3, 3}, at::kFloat);
  const at::Tensor expected = at::conv2d(image, weight, {}, 1, 1);
  expect_close(convolution(image, weight, c10::nullopt, plain), expected, 2e-3);
  expect_close(convolution(image, weight, at::Tensor(), plain), expected, 2e-3);
}

TEST_F(ConvolutionsTest, KeepNaNAndInfinity) {
  const HoldKernelSettings settings({.tf32 = true});
  const ConvolutionGeometry plain = geometry({1, 1}, {1, 1});
  at::Tensor image = random({2, 8, 6, 6}, at::kFloat);
  image[0][3][2][2] = std::numeric_limits<float>::quiet_NaN();
  image[1][3][2][2] = std::numeric_limits<float>::infinity();
  const at::Tensor y = convolution(image, random({8, 8, 3, 3}, at::kFloat), {}, plain);
  EXPECT_EQ(y[0].isnan().sum().item<int64_t>(), 8 * 9);
  EXPECT_EQ(y[1].isfinite().logical_not().sum().item<int64_t>(), 8 * 9);
}

TEST_F(ConvolutionsTest, OfNothingAreLibtorchs) {
  const ConvolutionGeometry plain = geometry({1, 1}, {1, 1});
  const at::Tensor image = random({0, 8, 6, 6}, at::kFloat),
                   weight = random({8, 8, 3, 3}, at::kFloat);
  EXPECT_EQ(convolution(image, weight, {}, plain).sizes(), (std::vector<int64_t>{0, 8, 6, 6}));
}

TEST_F(ConvolutionsTest, AreLibtorchsWhereMemoryIsNotAligned) {
  const ConvolutionGeometry plain = geometry({1, 1}, {1, 1});
  const at::Tensor weight = random({8, 8, 3, 3}, at::kFloat);
  const at::Tensor image = random({2 * 8 * 6 * 6 + 1}, at::kFloat).slice(0, 1).view({2, 8, 6, 6});
  expect_close(convolution(image, weight, {}, plain),
               libtorch_convolution(image, weight, {}, plain), 1e-5);
}

TEST_F(ConvolutionsTest, AreLibtorchsBitForBitIfTheyMustRepeatThemselves) {
  const HoldKernelSettings settings({.deterministic = true});
  const ConvolutionGeometry plain = geometry({1, 1}, {1, 1});
  const at::Tensor image = random({8, 32, 28, 28}, at::kFloat);
  const at::Tensor weight = random({32, 32, 3, 3}, at::kFloat);
  EXPECT_TRUE(at::equal(convolution(image, weight, {}, plain),
                        libtorch_convolution(image, weight, {}, plain)));
}

// ---- on disk

class KeptConvolutionsTest : public ConvolutionsTest {
 protected:
  bool run(Convolutions& convolutions, at::ScalarType type = at::kFloat) {
    image_ = random({4, 16, 8, 8}, type);
    weight_ = random({16, 16, 3, 3}, type);
    output_ = at::full_like(image_, std::numeric_limits<float>::quiet_NaN());
    const auto layout = [](const at::Tensor& tensor) -> ConvolutionProblem::Layout {
      return {tensor.sizes().vec(), tensor.strides().vec()};
    };
    return convolutions.run({.type = type,
                             .input = layout(image_),
                             .weight = layout(weight_),
                             .output = layout(output_),
                             .stride = {1, 1},
                             .padding = {1, 1},
                             .dilation = {1, 1}},
                            image_, weight_, output_);
  }

  void expect_right() const {
    const at::Tensor expected = at::conv2d(image_, weight_, {}, 1, 1);
    expect_close(output_, expected, 2e-3);
  }

  TempDir folder_;

 private:
  at::Tensor image_, weight_, output_;
};

TEST_F(KeptConvolutionsTest, AreTriedOnceAndForAll) {
  Convolutions first{KernelCache(folder_.path())};
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(run(first));
    expect_right();
  }
  EXPECT_EQ(first.searches(), 1);
  Convolutions second{KernelCache(folder_.path())};
  ASSERT_TRUE(run(second));
  expect_right();
  EXPECT_EQ(second.searches(), 0);
  ASSERT_TRUE(run(second, at::kHalf));
  expect_right();
  EXPECT_EQ(second.searches(), 1);
}

TEST_F(KeptConvolutionsTest, AreTriedAgainIfWhatWasKeptIsCutOff) {
  {
    Convolutions first{KernelCache(folder_.path())};
    ASSERT_TRUE(run(first));
  }
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    std::string file = read_file(entry.path());
    file.resize(file.size() / 2);
    write_file_atomically(entry.path(), file);
  }
  Convolutions again{KernelCache(folder_.path())};
  ASSERT_TRUE(run(again));
  expect_right();
  EXPECT_EQ(again.searches(), 1);
}

}  // namespace
}  // namespace tensorpack::cuda
