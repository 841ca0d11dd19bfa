// SPDX-License-Identifier: Apache-2.0
// Fused kernels on a device: compiled, cached, launched, captured.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/cuda/jit.h"
#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/device_launcher.h"
#include "tensorpack/cuda/kernels/fold_image.h"
#include "tensorpack/utils/error.h"
#include "tests/cuda/device.h"
#include "tests/cuda/kernel_cases.h"

namespace tensorpack::cuda {
namespace {

class FusedKernelsTest : public test::CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    at::empty({1}, at::kCUDA);  // makes the device current
    ASSERT_EQ(obstacle_to_compiling(), std::nullopt);
    launcher_ = device_launcher();
  }
  const Launcher* launcher_ = nullptr;
};

// Some shapes of ResNet-50, too.
std::vector<BatchNormCase> batch_norm_cases_on_devices() {
  std::vector<BatchNormCase> cases = batch_norm_cases();
  for (c10::ScalarType type : {c10::kFloat, c10::kBFloat16}) {
    cases.push_back({{32, 64, 56, 56}, type});
    cases.push_back({{32, 256, 14, 14}, type});
    cases.push_back({{32, 2048, 7, 7}, type});
  }
  return cases;
}

TEST_F(FusedKernelsTest, BatchNormGivesWhatTheUnfusedOperatorsGive) {
  for (const BatchNormCase& of : batch_norm_cases_on_devices()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_batch_norm_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, BatchNormsThatAreAddedGiveWhatTheUnfusedOperatorsGive) {
  std::vector<BatchNormCase> cases = batch_norm_cases_on_devices();
  cases.push_back({{3, 12, 3, 3}, at::kBFloat16});
  for (const BatchNormCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_added_batch_norms_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, CrossEntropyGivesWhatTheUnfusedOperatorsGive) {
  std::vector<CrossEntropyCase> cases = cross_entropy_cases();
  cases.push_back({512, 50304, c10::kBFloat16, c10::kBFloat16});
  cases.push_back({64, 50304, c10::kFloat, c10::kFloat});
  for (const CrossEntropyCase& of : cases) {
    SCOPED_TRACE(c10::str(of.rows, " x ", of.classes, " ", of.type));
    expect_cross_entropy_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, BiasReluGivesWhatTheUnfusedOperatorsGive) {
  expect_bias_relu_as_unfused({16, 64, 56, 56}, at::kBFloat16, at::kBFloat16, *launcher_,
                              at::kCUDA);
  expect_bias_relu_as_unfused({3, 7, 5, 5}, at::kFloat, at::kFloat, *launcher_, at::kCUDA);
}

TEST_F(FusedKernelsTest, CastsGiveLibtorchsBits) {
  for (const auto from : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const auto to : {at::kFloat, at::kBFloat16, at::kHalf}) {
      if (from == to) continue;
      SCOPED_TRACE(c10::str(from, " to ", to));
      expect_cast_as_unfused(from, to, *launcher_, at::kCUDA);
      expect_large_cast_as_unfused(from, to, *launcher_, at::kCUDA);
    }
  }
}

TEST_F(FusedKernelsTest, ColumnSumGivesWhatTheUnfusedOperatorsGive) {
  expect_column_sum_as_unfused({16384, 3072}, at::kBFloat16, at::kBFloat16, *launcher_, at::kCUDA);
  expect_column_sum_as_unfused({77, 131}, at::kHalf, at::kFloat, *launcher_, at::kCUDA);
}

TEST_F(FusedKernelsTest, ConcatSumGivesWhatTheUnfusedOperatorsGive) {
  using enum ConcatSumCase::Layout;
  std::vector<ConcatSumCase> cases = concat_sum_cases();
  for (c10::ScalarType type : {c10::kFloat, c10::kBFloat16}) {
    cases.push_back({{16, 1024}, {768, 768, 768}, type, type});
    cases.push_back({{16, 1024}, {768, 768, 768}, type, type, kColumns});
  }
  for (const ConcatSumCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.rows), " ", at::IntArrayRef(of.columns), of.type));
    expect_concat_sum_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, EmbeddingGradientGivesWhatTheUnfusedOperatorsGive) {
  using enum EmbeddingGradientCase::Words;
  std::vector<EmbeddingGradientCase> cases = embedding_gradient_cases();
  cases.push_back({{16, 1024}, 50304, 768, c10::kBFloat16});
  cases.push_back({{16, 1024}, 50304, 768, c10::kBFloat16, kFew, 1});
  for (const EmbeddingGradientCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " of ", of.vocabulary, " x ", of.features));
    expect_embedding_gradient_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, FilterGradientGivesWhatTheUnfusedOperatorsGive) {
  using enum FilterGradientCase::Layout;
  std::vector<FilterGradientCase> cases = filter_gradient_cases();
  const FilterGradient cifar{
      .size = {32, 3, 3, 3}, .strides = {27, 1, 9, 3}, .padding = {1, 1}, .bias = true};
  const FilterGradient gan{.size = {32, 1, 5, 5},
                           .strides = {25, 25, 5, 1},
                           .stride = {2, 2},
                           .padding = {2, 2},
                           .bias = true};
  for (c10::ScalarType type : {c10::kFloat, c10::kBFloat16}) {
    cases.push_back({{32, 3, 32, 32}, cifar, kChannelsLast, kContiguous, type});
    cases.push_back({{64, 1, 28, 28}, gan, kContiguous, kContiguous, type});
  }
  for (const FilterGradientCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.image), " ", at::IntArrayRef(of.of.size)));
    expect_filter_gradient_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, FoldedImagesAndTheirConvolutionsGiveWhatTheUnfusedOperatorsGive) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const auto draw = [&](at::IntArrayRef size) {
      return at::randn(size, at::TensorOptions(at::kCUDA).dtype(type))
          .contiguous(at::MemoryFormat::ChannelsLast);
    };
    const at::Tensor image = draw({4, 3, 64, 64}), weight = draw({64, 3, 7, 7});
    const at::Tensor expected = at::conv2d(image, weight, {}, 2, 3);
    const ImageFold fold = ImageFold::of(weight.sizes(), {3, 3}, expected.sizes(), type);
    const at::Tensor folded = fold_image(image, fold, *launcher_);
    EXPECT_TRUE(at::equal(folded, fold_image_unfused(image, fold)));
    EXPECT_TRUE(at::allclose(folded_convolution(folded, weight), expected, 0.02, 0.2));
  }
}

TEST_F(FusedKernelsTest, LayerNormGivesWhatTheUnfusedOperatorsGive) {
  std::vector<LayerNormCase> cases = layer_norm_cases();
  cases.push_back({{16, 1024, 768}, c10::kFloat, c10::kBFloat16});
  cases.push_back({{1000, 2048}, c10::kFloat, c10::kFloat});
  for (const LayerNormCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type, " ", of.layers));
    expect_layer_norm_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, MaxPoolGivesWhatTheUnfusedOperatorsGive) {
  std::vector<MaxPoolCase> cases = max_pool_cases();
  cases.push_back({{16, 64, 112, 112}, {{3, 3}, {2, 2}, {1, 1}}, c10::kFloat});
  for (const MaxPoolCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_max_pool_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, PoolingWhatIsNormalisedGivesWhatTheUnfusedOperatorsGive) {
  std::vector<MaxPoolCase> cases = max_pool_cases();
  std::erase_if(cases, [](const MaxPoolCase& of) { return of.sizes[2] == 1; });
  const PoolWindow window{{3, 3}, {2, 2}, {1, 1}};
  for (const auto type : {c10::kFloat, c10::kBFloat16, c10::kHalf}) {
    cases.push_back({{16, 64, 112, 112}, window, type});
  }
  cases.push_back({{3, 1030, 7, 9}, {{2, 2}, {2, 2}, {0, 0}}, c10::kBFloat16});
  for (const MaxPoolCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_batch_norm_pool_as_unfused(of, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, PointwiseChainsGiveWhatTheUnfusedOperatorsGive) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    expect_pointwise_as_unfused(seed, *launcher_, at::kCUDA);
  }
  for (c10::ScalarType type : {c10::kFloat, c10::kBFloat16, c10::kHalf}) {
    SCOPED_TRACE(type);
    expect_every_step_as_unfused(type, *launcher_, at::kCUDA);
    expect_pointwise_sum_as_unfused({16384, 3072}, type, *launcher_, at::kCUDA);
    expect_pointwise_sum_as_unfused({64, 32, 14, 14}, type, *launcher_, at::kCUDA);
    expect_pointwise_sum_as_unfused({5, 7, 3, 3}, type, *launcher_, at::kCUDA);
  }
}

TEST_F(FusedKernelsTest, SumsRepeatBitByBit) {
  const at::Tensor counters = make_counters(at::kCUDA);
  const at::Tensor x = at::randn({64, 64, 28, 28}, at::kCUDA)
                           .to(at::kBFloat16)
                           .contiguous(at::MemoryFormat::ChannelsLast);
  const auto first = batch_norm_act({.input = x}, counters, *launcher_);
  for (int i = 0; i < 10; ++i) {
    const auto again = batch_norm_act({.input = x}, counters, *launcher_);
    EXPECT_TRUE(at::equal(std::get<1>(first), std::get<1>(again)));
    EXPECT_TRUE(at::equal(std::get<2>(first), std::get<2>(again)));
  }
}

TEST_F(FusedKernelsTest, AKernelThatDoesNotCompileSaysWhyEachTime) {
  const KernelSource broken{"broken",
                            "extern \"C\" __global__ void broken() { undefined_name(); }"};
  for (int i = 0; i < 2; ++i) {
    try {
      launcher_->prepare(broken);
      FAIL() << "it compiled";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("undefined_name"));
    }
  }
}

}  // namespace
}  // namespace tensorpack::cuda
