// SPDX-License-Identifier: Apache-2.0
// Fused kernels against libtorch's operators over grids, wherever they run.
#pragma once

#include "tensorpack/cuda/kernels/filter_gradient.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/cuda/kernels/max_pool.h"

namespace tensorpack::cuda {

struct BatchNormCase {
  std::vector<int64_t> sizes = {};
  c10::ScalarType type = c10::kFloat;
};

/// Odd sizes, one row, one channel, channels that no vector divides.
std::vector<BatchNormCase> batch_norm_cases();

/// Runs every variant on `device` and expects what libtorch's operators give in float.
void expect_batch_norm_as_unfused(const BatchNormCase& of, const Launcher& launcher,
                                  c10::Device device);

/// Two batch norms that are added, with relu behind them. Both find the statistics they find alone.
void expect_added_batch_norms_as_unfused(const BatchNormCase& of, const Launcher& launcher,
                                         c10::Device device);

struct CrossEntropyCase {
  int64_t rows = 1;
  int64_t classes = 1;
  c10::ScalarType type = c10::kFloat;
  c10::ScalarType grad_type = c10::kFloat;
  bool mean = true;
};

/// One row, one class, rows longer than a block, classes that no vector divides.
std::vector<CrossEntropyCase> cross_entropy_cases();

/// With some rows ignored.
void expect_cross_entropy_as_unfused(const CrossEntropyCase& of, const Launcher& launcher,
                                     c10::Device device);

struct EmbeddingGradientCase {
  enum class Words { kRandom, kFew, kOne };

  std::vector<int64_t> sizes = {};  // of the words
  int64_t vocabulary = 1;
  int64_t features = 1;
  c10::ScalarType type = c10::kFloat;  // of the other gradient
  Words words = Words::kRandom;
  int64_t padding_idx = -1;
  c10::ScalarType of_words = c10::kLong;
};

/// One word, words that are everywhere, vectors shorter than a warp, vectors that no vector of the
/// device divides.
std::vector<EmbeddingGradientCase> embedding_gradient_cases();

/// Expects what libtorch gives in double, words that are not there untouched, and the same bits
/// again.
void expect_embedding_gradient_as_unfused(const EmbeddingGradientCase& of, const Launcher& launcher,
                                          c10::Device device);

/// Images [N, C, H, W] and the number of filters, whose gradient's other numbers are in `of`.
struct FilterGradientCase {
  enum class Layout { kContiguous, kChannelsLast, kPart };

  std::vector<int64_t> image = {};
  FilterGradient of = {};
  Layout of_grad = Layout::kChannelsLast;
  Layout of_image = Layout::kContiguous;
  c10::ScalarType type = c10::kFloat;
};

/// One place, one filter, more filters than a block has, as many taps as can be; strides, padding,
/// dilation; layouts.
std::vector<FilterGradientCase> filter_gradient_cases();

/// Expects what libtorch gives in double, and the same bits again.
void expect_filter_gradient_as_unfused(const FilterGradientCase& of, const Launcher& launcher,
                                       c10::Device device);

struct MaxPoolCase {
  std::vector<int64_t> sizes = {};
  PoolWindow window = {};
  c10::ScalarType type = c10::kFloat;
};

/// Windows that overlap, that leave gaps and that reach over the border.
std::vector<MaxPoolCase> max_pool_cases();

void expect_max_pool_as_unfused(const MaxPoolCase& of, const Launcher& launcher,
                                c10::Device device);

/// Max pooling of relu of batch norm, with weights of both signs and of zero; two gradients that
/// are added.
void expect_batch_norm_pool_as_unfused(const MaxPoolCase& of, const Launcher& launcher,
                                       c10::Device device);

struct LayerNormCase {
  std::vector<int64_t> sizes = {};
  c10::ScalarType type = c10::kFloat;    // of the stream
  c10::ScalarType layers = c10::kFloat;  // of what layers give and read
};

/// One element, rows shorter than a warp, rows that no vector divides, rows as long as they may be
/// with sums over them.
std::vector<LayerNormCase> layer_norm_cases();

void expect_layer_norm_as_unfused(const LayerNormCase& of, const Launcher& launcher,
                                  c10::Device device);

/// A matrix in this type, its sums in another.
void expect_column_sum_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                  c10::ScalarType of_sums, const Launcher& launcher,
                                  c10::Device device);

/// Matrices, or batches of them, side by side.
struct ConcatSumCase {
  /// Of the parts in memory: as they are, as columns of wider matrices (the second begins where
  /// vectors do, the third does not), one row for all.
  enum class Layout { kDense, kColumns, kOddColumns, kExpanded };

  std::vector<int64_t> rows = {};     // in one dimension or several
  std::vector<int64_t> columns = {};  // of the parts
  c10::ScalarType type = c10::kFloat;
  c10::ScalarType of_sums = c10::kFloat;
  Layout layout = Layout::kDense;
};

/// One row, one column, one part, as many parts as can be; columns that no vector divides.
std::vector<ConcatSumCase> concat_sum_cases();

/// Expects libtorch's bits, NaN and infinity among them, and sums that repeat bit by bit.
void expect_concat_sum_as_unfused(const ConcatSumCase& of, const Launcher& launcher,
                                  c10::Device device);

/// A formula of random steps over random inputs, broadcast and transposed ones among them.
void expect_pointwise_as_unfused(uint64_t seed, const Launcher& launcher, c10::Device device);
/// Every operator that a formula can have, in steps of this type.
void expect_every_step_as_unfused(c10::ScalarType type, const Launcher& launcher,
                                  c10::Device device);
/// The gradient of leaky relu, and its sums over the rows of such a matrix or image.
void expect_pointwise_sum_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                     const Launcher& launcher, c10::Device device);

/// An image in this type, a bias in another.
void expect_bias_relu_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                 c10::ScalarType of_bias, const Launcher& launcher,
                                 c10::Device device);

/// Every exponent and sign, ties, numbers that are none, tensors of all lengths and layouts, more
/// of them than a table has, some put together: bit by bit.
void expect_cast_as_unfused(c10::ScalarType from, c10::ScalarType to, const Launcher& launcher,
                            c10::Device device);
/// So many elements that blocks get more of them.
void expect_large_cast_as_unfused(c10::ScalarType from, c10::ScalarType to,
                                  const Launcher& launcher, c10::Device device);

}  // namespace tensorpack::cuda
