// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/fused.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include "tensorpack/cuda/jit.h"
#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/batch_norm_pool.h"
#include "tensorpack/cuda/kernels/bias_relu.h"
#include "tensorpack/cuda/kernels/cast.h"
#include "tensorpack/cuda/kernels/column_sum.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/device_launcher.h"
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tensorpack/cuda/kernels/filter_gradient.h"
#include "tensorpack/cuda/kernels/kernel_list.h"
#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tensorpack/cuda/kernels/max_pool.h"
#include "tensorpack/cuda/kernels/pointwise.h"
#include "tensorpack/cuda/kernels/update.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack::bench {
namespace {

// As many steps as asked for, then one wait.
Timed on_device(std::function<void()> step) {
  return [step = std::move(step)](int64_t steps) {
    torch::cuda::synchronize();
    const Timer timer;
    for (int64_t i = 0; i < steps; ++i) step();
    torch::cuda::synchronize();
    return timer.seconds();
  };
}

Figure against_copy(const Stopwatch& watch, double bytes, std::function<void()> step) {
  const at::Tensor from =
      at::ones({static_cast<int64_t>(bytes / 2)}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const at::Tensor to = at::empty_like(from);
  step();  // compiles, which must not be taken for the time of a step
  Figure figure = watch.compare({.ours = on_device(std::move(step)),
                                 .peer = on_device([=] { at::Tensor(to).copy_(from); }),
                                 .peer_name = "a copy of the same bytes"});
  figure.note = fmt::format("{:.2f} TB/s", bytes / *figure.ours * 1e-6);
  return figure;
}

const cuda::Launcher& launcher() {
  at::empty({1}, at::kCUDA);
  const cuda::Launcher* found = cuda::device_launcher();
  if (found == nullptr) throw Skip("kernels cannot be compiled here");
  return *found;
}

at::Tensor image(int64_t channels, int64_t side, int64_t batch = 256,
                 at::ScalarType type = at::kBFloat16) {
  return at::randn({batch, channels, side, side}, at::TensorOptions(at::kCUDA).dtype(type))
      .contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor vector(int64_t channels) { return at::rand({channels}, at::kCUDA); }

// What relu let pass of such an image.
at::Tensor bits_like(const at::Tensor& image) {
  const int64_t bytes = cuda::relu_bits_size(image.scalar_type(), image.numel());
  return at::randint(256, {bytes}, image.options().dtype(at::kByte));
}

Figure batch_norm(const Stopwatch& watch, int64_t channels, int64_t side, bool added = false) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  cuda::BatchNormArguments a{.input = image(channels, side),
                             .weight = vector(channels),
                             .bias = vector(channels),
                             .running_mean = vector(channels),
                             .running_var = vector(channels),
                             .relu = true};
  double passes = 3;  // read for the statistics, read and written for the result
  if (added) {
    a.residual = image(channels, side);
    a.residual_statistics = cuda::BatchNormStatistics{vector(channels), vector(channels)};
    a.residual_weight = vector(channels);
    a.residual_bias = vector(channels);
    a.keep_bits = true;
    passes = 4;  // bits are next to nothing
  }
  return against_copy(watch, passes * static_cast<double>(a.input.nbytes()),
                      [=, &launch] { cuda::batch_norm_act(a, counters, launch); });
}

Figure batch_norm_backward(const Stopwatch& watch, int64_t channels, int64_t side, bool residual) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  cuda::BatchNormBackwardArguments a{.grad = image(channels, side),
                                     .input = image(channels, side),
                                     .weight = vector(channels),
                                     .bias = vector(channels),
                                     .mean = vector(channels),
                                     .invstd = vector(channels),
                                     .mask = cuda::ReluMask::kOfInput};
  double passes = 5;  // two reads for the sums, two reads and a write for the result
  if (residual) {
    a.other = image(channels, side);
    a.output = bits_like(a.input);
    a.mask = cuda::ReluMask::kOfBits;
    a.keeps = cuda::NormKeeps::kMasked;
    passes = 7;  // three reads and a write, then two reads and a write; bits are next to nothing
  }
  return against_copy(watch, passes * static_cast<double>(a.input.nbytes()),
                      [=, &launch] { cuda::batch_norm_act_backward(a, counters, launch); });
}

double bytes_of(const at::Tensor& tensor) { return static_cast<double>(tensor.nbytes()); }

// Layers of ResNet-50 that have one shape.
struct NormLayers {
  int count;
  int64_t channels, side;
  enum { kRelu, kResidual, kPlain } kind;
};

constexpr NormLayers kResNet50[] = {
    {1, 64, 112, NormLayers::kRelu},      {6, 64, 56, NormLayers::kRelu},
    {3, 256, 56, NormLayers::kResidual},  {1, 256, 56, NormLayers::kPlain},
    {1, 128, 56, NormLayers::kRelu},      {7, 128, 28, NormLayers::kRelu},
    {4, 512, 28, NormLayers::kResidual},  {1, 512, 28, NormLayers::kPlain},
    {1, 256, 28, NormLayers::kRelu},      {11, 256, 14, NormLayers::kRelu},
    {6, 1024, 14, NormLayers::kResidual}, {1, 1024, 14, NormLayers::kPlain},
    {1, 512, 14, NormLayers::kRelu},      {5, 512, 7, NormLayers::kRelu},
    {3, 2048, 7, NormLayers::kResidual},  {1, 2048, 7, NormLayers::kPlain},
};

// All batch norms of a step of ResNet-50, forward and backward.
Figure batch_norm_of_resnet50(const Stopwatch& watch, int64_t batch, at::ScalarType type) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  std::vector<std::function<void(const cuda::Launcher&, int)>> steps;
  std::vector<int> counts;
  double bytes = 0;
  for (const NormLayers& layers : kResNet50) {
    const auto draw = [&] { return image(layers.channels, layers.side, batch, type); };
    const bool residual = layers.kind == NormLayers::kResidual;
    cuda::BatchNormArguments forward{.input = draw(),
                                     .weight = vector(layers.channels),
                                     .bias = vector(layers.channels),
                                     .running_mean = vector(layers.channels),
                                     .running_var = vector(layers.channels),
                                     .relu = layers.kind != NormLayers::kPlain};
    cuda::BatchNormBackwardArguments backward{.grad = draw(),
                                              .input = forward.input,
                                              .weight = forward.weight,
                                              .bias = forward.bias,
                                              .mean = vector(layers.channels),
                                              .invstd = vector(layers.channels)};
    if (residual) {
      forward.residual = draw();
      backward.other = draw();
      forward.keep_bits = true;
      backward.output = bits_like(forward.input);
      backward.mask = cuda::ReluMask::kOfBits;
      backward.keeps = cuda::NormKeeps::kMasked;
    } else if (forward.relu) {
      backward.mask = cuda::ReluMask::kOfInput;
    }
    steps.push_back([=](const cuda::Launcher& launch, int count) {
      for (int i = 0; i < count; ++i) {
        cuda::batch_norm_act(forward, counters, launch);
        cuda::batch_norm_act_backward(backward, counters, launch);
      }
    });
    counts.push_back(layers.count);
    // Three passes over the data forward and five backward, or four and seven.
    bytes += layers.count * (residual ? 11 : 8) * bytes_of(forward.input);
  }
  {
    const cuda::KernelList kernels(launch.multiprocessors());
    for (const auto& step : steps) step(kernels, 1);
    cuda::prepare_all(kernels.kernels());  // many, together
  }
  const auto step = [=, &launch] {
    for (size_t i = 0; i < steps.size(); ++i) steps[i](launch, counts[i]);
  };
  return against_copy(watch, bytes, step);
}

// GPT-2's: 16 x 1024 words, the vocabulary padded.
Figure cross_entropy(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const auto options = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
  const cuda::CrossEntropyArguments a{
      .logits = at::randn({16384, 50304}, options),
      .target = at::randint(50304, {16384}, options.dtype(at::kLong)),
      .loss_grad = at::ones({}, at::kCUDA),
      .grad_type = at::kBFloat16};
  return against_copy(watch, 2 * bytes_of(a.logits),
                      [=, &launch] { cuda::cross_entropy(a, launch); });
}

at::Tensor stream(at::ScalarType type) {
  return at::randn({16, 1024, 768}, at::TensorOptions(at::kCUDA).dtype(type));
}

Figure layer_norm(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::LayerNormArguments a{.input = stream(at::kFloat),
                                   .residual = stream(at::kBFloat16),
                                   .weight = vector(768),
                                   .bias = vector(768),
                                   .type = at::kBFloat16,
                                   .size = {16384, 768}};
  return against_copy(watch, 2 * bytes_of(a.input) + 2 * bytes_of(*a.residual),
                      [=, &launch] { cuda::layer_norm(a, launch); });
}

// The sums over the rows take no byte more.
Figure layer_norm_backward(const Stopwatch& watch, bool sum) {
  const cuda::Launcher& launch = launcher();
  cuda::LayerNormBackwardArguments a{.grad = stream(at::kBFloat16),
                                     .input = stream(at::kFloat),
                                     .weight = vector(768),
                                     .mean = vector(16384),
                                     .rstd = vector(16384),
                                     .other = stream(at::kFloat),
                                     .copy = at::kBFloat16};
  if (sum) a.sum = at::kBFloat16;
  return against_copy(watch, 3 * bytes_of(a.input) + 2 * bytes_of(a.grad),
                      [=, &launch] { cuda::layer_norm_backward(a, launch); });
}

cuda::EmbeddingGradientArguments gradients_of_words() {
  const auto options = at::TensorOptions(at::kCUDA);
  return {.grad = stream(at::kFloat),
          .words = at::randint(50257, {16, 1024}, options.dtype(at::kLong)),
          .other = at::randn({50304, 768}, options.dtype(at::kBFloat16))};
}

Figure embedding_gradient(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::EmbeddingGradientArguments a = gradients_of_words();
  return against_copy(watch, bytes_of(a.grad) + 3 * bytes_of(a.other),
                      [=, &launch] { cuda::embedding_gradient(a, launch); });
}

Figure embedding_gradient_against_libtorch(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::EmbeddingGradientArguments a = gradients_of_words();
  const auto step = [=, &launch] { cuda::embedding_gradient(a, launch); };
  step();  // compiles
  return watch.compare({.ours = on_device(step),
                        .peer = on_device([=] { cuda::embedding_gradient_unfused(a); }),
                        .peer_name = "libtorch's gradient, cast and addition"});
}

// ResNet-50's.
Figure max_pool(const Stopwatch& watch, bool backward) {
  const cuda::Launcher& launch = launcher();
  const cuda::PoolWindow window{{3, 3}, {2, 2}, {1, 1}};
  const at::Tensor x = image(64, 112);
  const auto [y, places] = cuda::max_pool(x, window, launch);
  const at::Tensor grad = y, where = places;
  return against_copy(watch, bytes_of(x) + bytes_of(y) + bytes_of(places), [=, &launch] {
    if (backward) {
      cuda::max_pool_backward(grad, where, x.sizes(), window, launch);
    } else {
      cuda::max_pool(x, window, launch);
    }
  });
}

// ResNet-50's first batch norm, relu and pooling.
Figure batch_norm_pool(const Stopwatch& watch, bool backward) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  const cuda::PoolWindow window{{3, 3}, {2, 2}, {1, 1}};
  const cuda::BatchNormArguments a{
      .input = image(64, 112), .weight = vector(64), .bias = vector(64)};
  const cuda::BatchNormPoolResults found = cuda::batch_norm_pool(a, window, counters, launch);
  if (!backward) {
    // Read for the statistics and for the maxima, of which the inputs are written, too.
    const double bytes = 2 * bytes_of(a.input) + 2 * bytes_of(found.y) + bytes_of(found.places);
    return against_copy(watch, bytes,
                        [=, &launch] { cuda::batch_norm_pool(a, window, counters, launch); });
  }
  const cuda::BatchNormPoolBackwardArguments b{.grad = found.y,
                                               .other = at::randn_like(found.y),
                                               .input = a.input,
                                               .taken = found.taken,
                                               .places = found.places,
                                               .weight = a.weight,
                                               .bias = a.bias,
                                               .statistics = found.statistics};
  // Three reads and a write for the sums, then the sum of the gradients, the places and the input.
  const double bytes = 5 * bytes_of(b.grad) + bytes_of(b.places) + 2 * bytes_of(b.input);
  return against_copy(
      watch, bytes, [=, &launch] { cuda::batch_norm_pool_backward(b, window, counters, launch); });
}

// VGG16's.
Figure bias_relu(const Stopwatch& watch, bool backward) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  const at::Tensor x = image(256, 56), grad = image(256, 56), bias = vector(256);
  return against_copy(watch, (backward ? 3 : 2) * bytes_of(x), [=, &launch] {
    if (backward) {
      cuda::bias_relu_backward(grad, x, counters, at::kFloat, launch);
    } else {
      cuda::bias_relu(x, bias, launch);
    }
  });
}

// Of a first layer with 64 filters over CIFAR's images.
Figure filter_gradient(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor grad = image(64, 32, 256, at::kFloat);
  const at::Tensor images = at::randn({256, 3, 32, 32}, at::kCUDA);
  const cuda::FilterGradient of{.size = {64, 3, 3, 3}, .strides = {27, 9, 3, 1}, .padding = {1, 1}};
  return against_copy(watch, bytes_of(grad) + bytes_of(images),
                      [=, &launch] { cuda::filter_gradient(grad, images, of, launch); });
}

// What GPT-2's layers make of 16 x 1024 words, between their two products of matrices.
at::Tensor hidden() {
  return at::randn({16384, 3072}, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
}

const cuda::DenseLayout kHidden{.sizes = {16384, 3072}, .strides = {3072, 1}};

Figure column_sum(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  const at::Tensor x = hidden();
  return against_copy(watch, bytes_of(x), [=, &launch] {
    cuda::column_sum(x, counters, /*keep_rows=*/false, at::kFloat, launch);
  });
}

// The gradients of queries, keys and values, and of their biases.
Figure concat_sum(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  const std::vector<at::Tensor> parts = {stream(at::kBFloat16), stream(at::kBFloat16),
                                         stream(at::kBFloat16)};
  return against_copy(watch, 2 * 3 * bytes_of(parts[0]), [=, &launch] {
    cuda::concat_sum(parts, counters, /*keep_rows=*/true, at::kBFloat16, launch);
  });
}

Figure pointwise(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::Formula gelu = cuda::parse_formula("gelu %0 : bf16 -> %1", 1);
  const std::vector<at::Tensor> inputs = {hidden()};
  return against_copy(watch, 2 * bytes_of(inputs[0]),
                      [=, &launch] { cuda::pointwise(inputs, gelu, kHidden, launch); });
}

Figure pointwise_sum(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const at::Tensor counters = cuda::make_counters(at::kCUDA);
  const cuda::Formula gradient = cuda::parse_formula("gelu_backward %0 %1 : bf16 -> %2", 2);
  const cuda::PointwiseSum sum{.columns = 3072, .sizes = {3072}};
  const std::vector<at::Tensor> inputs = {hidden(), hidden()};
  return against_copy(watch, 3 * bytes_of(inputs[0]), [=, &launch] {
    cuda::pointwise_sum(inputs, counters, gradient, kHidden, sum, launch);
  });
}

// As much as the weights of GPT-2's layers.
constexpr double kWeights = 36.0 * 3072 * 768;

std::vector<at::Tensor> weights(at::ScalarType type) {
  std::vector<at::Tensor> found;
  for (int i = 0; i < 36; ++i) {
    found.push_back(at::rand({3072, 768}, at::TensorOptions(at::kCUDA).dtype(type)));
  }
  return found;
}

Figure cast(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::CastArguments a{.tensors = weights(at::kFloat), .type = at::kBFloat16};
  return against_copy(watch, (4 + 2) * kWeights, [=, &launch] { cuda::cast(a, launch); });
}

Figure cast_against_libtorch(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::CastArguments a{.tensors = weights(at::kFloat), .type = at::kBFloat16};
  const auto step = [=, &launch] { cuda::cast(a, launch); };
  step();  // compiles
  return watch.compare({.ours = on_device(step),
                        .peer = on_device([=] { cuda::cast_unfused(a); }),
                        .peer_name = "libtorch's copies of many tensors"});
}

// AdamW, from gradients of 16 bits.
Figure update(const Stopwatch& watch) {
  const cuda::Launcher& launch = launcher();
  const cuda::UpdateTensors all{.variables = weights(at::kFloat),
                                .gradients = weights(at::kBFloat16),
                                .slots = {weights(at::kFloat), weights(at::kFloat)}};
  const at::Tensor lr = at::full({}, 1e-6, at::kCUDA);
  const at::Tensor step = at::ones({}, at::kCUDA);
  // Three are read and written in 32 bits, and the gradients read.
  return against_copy(watch, (3 * 8 + 2) * kWeights, [=, &launch] {
    cuda::adam_update(all, lr, step, {.weight_decay = 0.01, .decoupled = true}, launch);
  });
}

}  // namespace

void add_fused_benchmarks(Suite& suite) {
  suite.add("gpu/fused_batch_norm_resnet50_bandwidth", [](const Stopwatch& watch) {
    return batch_norm_of_resnet50(watch, 256, at::kBFloat16);
  });
  suite.add("gpu/fused_batch_norm_resnet50_tf32_bandwidth",
            [](const Stopwatch& watch) { return batch_norm_of_resnet50(watch, 64, at::kFloat); });
  suite.add("gpu/fused_batch_norm_bandwidth",
            [](const Stopwatch& watch) { return batch_norm(watch, 256, 56); });
  suite.add("gpu/fused_batch_norm_added_bandwidth",
            [](const Stopwatch& watch) { return batch_norm(watch, 256, 56, /*added=*/true); });
  suite.add("gpu/fused_batch_norm_small_bandwidth",
            [](const Stopwatch& watch) { return batch_norm(watch, 1024, 14); });
  suite.add("gpu/fused_batch_norm_backward_bandwidth",
            [](const Stopwatch& watch) { return batch_norm_backward(watch, 256, 56, false); });
  suite.add("gpu/fused_batch_norm_residual_backward_bandwidth",
            [](const Stopwatch& watch) { return batch_norm_backward(watch, 256, 56, true); });
  suite.add("gpu/fused_batch_norm_pool_bandwidth",
            [](const Stopwatch& watch) { return batch_norm_pool(watch, false); });
  suite.add("gpu/fused_batch_norm_pool_backward_bandwidth",
            [](const Stopwatch& watch) { return batch_norm_pool(watch, true); });
  suite.add("gpu/fused_cross_entropy_bandwidth", cross_entropy);
  suite.add("gpu/fused_embedding_gradient_bandwidth", embedding_gradient);
  suite.add("gpu/fused_embedding_gradient_vs_libtorch", embedding_gradient_against_libtorch);
  suite.add("gpu/fused_layer_norm_bandwidth", layer_norm);
  suite.add("gpu/fused_layer_norm_backward_bandwidth",
            [](const Stopwatch& watch) { return layer_norm_backward(watch, false); });
  suite.add("gpu/fused_layer_norm_backward_sum_bandwidth",
            [](const Stopwatch& watch) { return layer_norm_backward(watch, true); });
  suite.add("gpu/fused_max_pool_bandwidth",
            [](const Stopwatch& watch) { return max_pool(watch, false); });
  suite.add("gpu/fused_max_pool_backward_bandwidth",
            [](const Stopwatch& watch) { return max_pool(watch, true); });
  suite.add("gpu/fused_bias_relu_bandwidth",
            [](const Stopwatch& watch) { return bias_relu(watch, false); });
  suite.add("gpu/fused_bias_relu_backward_bandwidth",
            [](const Stopwatch& watch) { return bias_relu(watch, true); });
  suite.add("gpu/fused_cast_bandwidth", cast);
  suite.add("gpu/fused_cast_vs_libtorch", cast_against_libtorch);
  suite.add("gpu/fused_column_sum_bandwidth", column_sum);
  suite.add("gpu/fused_concat_sum_bandwidth", concat_sum);
  suite.add("gpu/fused_filter_gradient_bandwidth", filter_gradient);
  suite.add("gpu/fused_pointwise_bandwidth", pointwise);
  suite.add("gpu/fused_pointwise_sum_bandwidth", pointwise_sum);
  suite.add("gpu/fused_update_bandwidth", update);
}

}  // namespace tensorpack::bench
