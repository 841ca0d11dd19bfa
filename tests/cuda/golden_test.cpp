// SPDX-License-Identifier: Apache-2.0
// The sources of kernels, so that a change of one is seen as such. After a change that is meant,
// run with TENSORPACK_UPDATE_GOLDEN=1 and read the difference.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/batch_norm_pool.h"
#include "tensorpack/cuda/kernels/bias_relu.h"
#include "tensorpack/cuda/kernels/cast.h"
#include "tensorpack/cuda/kernels/column_sum.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tensorpack/cuda/kernels/filter_gradient.h"
#include "tensorpack/cuda/kernels/fold_image.h"
#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tensorpack/cuda/kernels/max_pool.h"
#include "tensorpack/cuda/kernels/pointwise.h"
#include "tensorpack/cuda/kernels/update.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack::cuda {
namespace {

// Compares what it is given to launch with the files, and launches nothing.
class GoldenLauncher final : public Launcher {
 public:
  // The suffix tells files of kernels with one name apart.
  explicit GoldenLauncher(std::string suffix = "") : suffix_(std::move(suffix)) {}

  int multiprocessors() const override { return 4; }
  void prepare(const KernelSource&) const override {}
  void launch(const KernelSource& kernel, const LaunchShape&, void**) const override {
    const auto file =
        std::filesystem::path(TENSORPACK_GOLDEN_FOLDER) / (kernel.name + suffix_ + ".cu.txt");
    if (env("TENSORPACK_UPDATE_GOLDEN")) write_file_atomically(file, kernel.text);
    EXPECT_EQ(kernel.text, read_file(file)) << kernel.name;
  }

 private:
  std::string suffix_;
};

TEST(GoldenKernelTest, SourcesAreThoseOnFile) {
  const GoldenLauncher launcher;
  const at::Tensor counters = make_counters(at::kCPU);
  const at::Tensor x =
      at::zeros({2, 16, 8, 8}, at::kBFloat16).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor vector = at::zeros({16});
  batch_norm_act({.input = x,
                  .residual = x,
                  .residual_statistics = BatchNormStatistics{vector, vector},
                  .relu = true,
                  .keep_bits = true},
                 counters, launcher);
  batch_norm_act_backward(
      {.grad = x, .input = x, .mean = vector, .invstd = vector, .mask = ReluMask::kOfInput},
      counters, launcher);
  bias_relu(x, vector, launcher);
  bias_relu_backward(x, x, counters, at::kFloat, launcher);
  const PoolWindow window{{3, 3}, {2, 2}, {1, 1}};
  const auto [y, places] = max_pool(x, window, launcher);
  max_pool_backward(y, places, x.sizes(), window, launcher);
  batch_norm_pool({.input = x}, window, counters, launcher);
  batch_norm_pool_backward(
      {.grad = y, .input = x, .taken = y, .places = places, .statistics = {vector, vector}}, window,
      counters, launcher);
  fold_image(at::zeros({2, 3, 8, 8}, at::kBFloat16),
             {.padding = {3, 3}, .size = {7, 7}, .channels = 16}, launcher);
  filter_gradient(x, at::zeros({2, 3, 8, 8}, at::kBFloat16),
                  {.size = {16, 3, 3, 3}, .strides = {27, 9, 3, 1}, .padding = {1, 1}}, launcher);
  const at::Tensor rows = at::zeros({4, 768});
  cross_entropy({.logits = rows, .target = at::zeros({4}, at::kLong), .loss_grad = at::ones({})},
                launcher);
  layer_norm({.input = rows, .type = at::kBFloat16, .size = {4, 768}}, launcher);
  layer_norm_backward({.grad = rows,
                       .input = rows,
                       .weight = at::zeros({768}),
                       .mean = at::zeros({4}),
                       .rstd = at::zeros({4}),
                       .copy = at::kBFloat16,
                       .sum = at::kBFloat16},
                      launcher);
  cast({.tensors = {rows}, .type = at::kBFloat16}, launcher);
  column_sum(rows, counters, true, at::kFloat, launcher);
  const at::Tensor part = at::zeros({4, 768}, at::kBFloat16);
  concat_sum({part, part, part}, counters, true, at::kBFloat16, launcher);
  embedding_gradient(
      {.grad = at::zeros({32, 768}), .words = at::zeros({32}, at::kLong), .other = part}, launcher);
  const Formula formula =
      parse_formula("add %0 %1 1 : bf16 ; leaky_relu %2 0.2 : bf16 ; cast %3 : float -> %4 %2", 2);
  const DenseLayout layout{x.sizes().vec(), x.strides().vec()};
  const std::vector<at::Tensor> inputs = {x, at::zeros({1, 16, 1, 1}, at::kBFloat16)};
  pointwise(inputs, formula, layout, launcher);
  pointwise_sum(inputs, counters, formula, layout, {.columns = 16, .sizes = {16}}, launcher);
  const UpdateTensors update{.variables = {rows}, .gradients = {rows}, .slots = {{rows}, {rows}}};
  sgd_update({.variables = {rows}, .gradients = {rows}, .slots = {{rows}}}, vector, {}, launcher);
  adam_update(update, vector, vector, {}, launcher);
}

TEST(GoldenKernelTest, SourcesOfUpdatesWithCopiesAreThoseOnFile) {
  const GoldenLauncher launcher("_and_copies");
  const at::Tensor rows = at::zeros({4, 768}), rate = at::zeros({1});
  const UpdateTensors update{.variables = {rows},
                             .gradients = {rows},
                             .slots = {{rows}, {rows}},
                             .copies = {rows.to(at::kBFloat16)}};
  adam_update(update, rate, rate, {}, launcher);
}

}  // namespace
}  // namespace tensorpack::cuda
