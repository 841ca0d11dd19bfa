// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/training.h"

#include <torch/cuda.h>

#include <numeric>

#include "benchmarks/gpu/jpeg.h"
#include "examples/gan/dcgan.h"
#include "examples/models/alexnet.h"
#include "examples/models/resnet.h"
#include "examples/models/transformer.h"
#include "examples/models/vgg.h"
#include "tensorpack/utils/env.h"

namespace tensorpack::bench {
namespace {

constexpr int64_t kImages = 50'000;

SessionOptions session_options(const GpuTask& task) {
  SessionOptions options{.precision =
                             task.precision == "bf16" ? Precision::kBFloat16 : Precision::kTf32};
  if (task.recompute) options.recompute = Recompute::kAlways;
  // To measure what a pass is worth, within one run; first those that are off by default.
  if (env("TENSORPACK_BENCH_WITH") == "keep_copies") options.keep_weight_copies = true;
  const std::string without = env("TENSORPACK_BENCH_WITHOUT").value_or("");
  if (without == "keep_copies") options.keep_weight_copies = false;
  if (without == "recompute") options.recompute = Recompute::kIfNeeded;
  if (without == "fusion") {
    options.fusion = Fusion::kNone;
    options.recompute = Recompute::kNever;
  }
  options.debug_passes = [without](PassSwitches& switches) {
    if (without == "bias_relu") switches.bias_relu = false;
    if (without == "casts") switches.batch_casts = false;
    if (without == "convolutions") switches.convolutions = false;
    if (without == "cudnn_choice") switches.cudnn_choice = false;
    if (without == "few_channels") switches.few_channels = false;
    if (without == "norm_pool") switches.norm_pool = false;
    if (without == "pointwise") switches.pointwise = false;
    if (without == "updates") switches.updates = false;
    if (without == "memsets") switches.memsets = false;
    if (without == "side_stream") switches.side_stream = false;
    if (without == "layer_norm") switches.layer_norm = false;
  };
  if (const auto candidates = env("TENSORPACK_BENCH_CUDNN_CANDIDATES")) {
    options.cudnn_candidates = std::stoi(*candidates);
  }
  return options;
}

Tensor cifar(const Tensor& image) {
  ArgScope convolutions(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
  Tensor l = Conv2D("conv0", image, {.filters = 32});
  l = Conv2D("conv1", l, {.filters = 32, .padding = Padding::valid()});
  l = Dropout("drop0", MaxPooling("pool0", l, 2), {.rate = 0.25});
  l = Conv2D("conv2", l, {.filters = 64});
  l = Conv2D("conv3", l, {.filters = 64, .padding = Padding::valid()});
  l = Dropout("drop1", MaxPooling("pool1", l, 2), {.rate = 0.25});
  l = FullyConnected("fc0", l, {.units = 512, .activation = torch::relu});
  return FullyConnected("fc1", Dropout("drop2", l), {.units = 10});
}

examples::TransformerOptions gpt2(const GpuTask& task) {
  if (task.tiny) {
    return {.vocabulary = 256,
            .context = task.size,
            .features = 64,
            .heads = 2,
            .layers = 2,
            .dropout = 0};
  }
  // The vocabulary of 50257 is padded to a multiple of 128, as is usual.
  return {.vocabulary = 50304,
          .context = task.size,
          .features = 768,
          .heads = 12,
          .layers = 12,
          .dropout = 0};
}

int64_t classes(const GpuTask& task) {
  if (task.model == "gpt2") return gpt2(task).vocabulary;
  return task.model == "cifar" ? 10 : 1000;
}

Owned<Optimizer> optimizer_of(const GpuTask& task) {
  if (task.model == "gpt2") return AdamW({.lr = 3e-4});
  if (task.model == "dcgan") return Adam({.lr = 2e-4, .beta1 = 0.5, .scope = "gen"});
  return Momentum(0.01);
}

// One batch, made on the device as the peers do.
std::vector<Tensor> constant_batch(const GpuTask& task, torch::Device device) {
  const auto labels = [&](torch::IntArrayRef shape) {
    return torch::randint(0, classes(task), shape,
                          torch::TensorOptions(torch::kLong).device(device));
  };
  if (task.model == "gpt2") {
    return {labels({task.batch, task.size}), labels({task.batch, task.size})};
  }
  if (task.model == "dcgan") {
    return {torch::rand({task.batch, task.size, task.size}, device),
            torch::randn({task.batch, gan::kNoise}, device)};
  }
  Tensor images = torch::randn({task.batch, 3, task.size, task.size}, device);
  if (task.channels_last) images = images.contiguous(torch::MemoryFormat::ChannelsLast);
  return {images, labels({task.batch})};
}

// Random images in the host's memory.
DataFlowPtr random_images(const GpuTask& task) {
  const int64_t count = task.tiny ? 1000 : kImages;
  const Tensor images =
      torch::randint(0, 256, {count, 3, task.size, task.size}, torch::TensorOptions(torch::kUInt8));
  const Tensor labels = torch::randint(0, 10, {count}, torch::TensorOptions(torch::kLong));
  std::vector<DataPoint> points;
  points.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) points.push_back({images[i], labels[i]});
  return std::make_unique<FromList>(std::move(points));
}

// Random parts of JPEGs, decoded on all cores or on the device.
Owned<InputSource> jpeg_images(const GpuTask& task) {
  const ImageBatchOptions options = jpeg_options(task.size, task.channels_last);
  DataFlowPtr files = jpeg_files(classes(task));
  // A short queue: what was decoded during the peer's turn must not count.
  const QueueInputOptions queue{.capacity = 2};
  if (!task.nvjpeg) return QueueInput(std::move(files) | image_batch(task.batch, options), queue);
  return DecodingInput(QueueInput(std::move(files) | encoded_batch(task.batch, options), queue),
                       options);
}

// Copies to the device ahead of the step that needs the data.
InputSourcePtr prefetched(Owned<InputSource> source, torch::Device device) {
  return std::make_unique<StagingInput>(std::move(source),
                                        StagingInputOptions{.devices = {device}});
}

}  // namespace

GpuTraining::GpuTraining(const GpuTask& task, torch::Device device)
    : task_(task), device_(device), optimizer_(optimizer_of(task)), graph_({.device = device}) {
  const bool is_gan = task.model == "dcgan";
  if (is_gan) second_optimizer_ = Adam({.lr = 2e-4, .beta1 = 0.5, .scope = "discrim"});
  op_ = graph_.define({
      .name = task.name,
      .inputs = inputs(),
      .body =
          [this, is_gan](const std::vector<Tensor>& in) {
            TowerContext tower(graph_);
            return is_gan ? play(in) : classify(in);
          },
      .feeder = feeder(),
  });
  graph_.finalize();
  session_.emplace(graph_, session_options(task));
}

std::vector<TensorSpec> GpuTraining::inputs() const {
  if (task_.model == "gpt2") {
    return {{"words", {-1, task_.size}, torch::kLong}, {"next", {-1, task_.size}, torch::kLong}};
  }
  if (task_.model == "dcgan") return {{"image", {-1, 28, 28}}, {"z", {-1, gan::kNoise}}};
  const auto type = task_.has_byte_images() ? torch::kUInt8 : torch::kFloat;
  return {{"image", {-1, 3, task_.size, task_.size}, type}, {"label", {-1}, torch::kLong}};
}

InputFeeder GpuTraining::feeder() {
  if (!task_.has_byte_images()) {
    return [batch = constant_batch(task_, device_)] { return batch; };
  }
  if (task_.jpeg_data) {
    source_ = prefetched(jpeg_images(task_), device_);
  } else {
    source_ = prefetched(
        QueueInput(random_images(task_) | shuffle() | tensorpack::batch(task_.batch)), device_);
  }
  return [this] { return source_->next()->components(); };
}

Tensor GpuTraining::logits(const Tensor& bytes_or_numbers) const {
  const Tensor input = task_.has_byte_images()
                           ? (bytes_or_numbers.to(torch::kFloat) - 127.5) / 63.75
                           : bytes_or_numbers;
  if (task_.model == "alexnet") return examples::alexnet(input);
  if (task_.model == "vgg16") return examples::vgg16(input);
  if (task_.model == "resnet50") return examples::resnet50(input);
  if (task_.model == "gpt2") return examples::transformer(input, gpt2(task_));
  return cifar(input);
}

NamedTensors GpuTraining::classify(const std::vector<Tensor>& in) {
  // The part that computes in the precision of the session.
  const TowerFunc network = [this](const Tensor& input) { return logits(input); };
  const Tensor scores = network({in[0]})[0].flatten(0, -2).to(torch::kFloat);
  const Tensor cost = torch::cross_entropy_loss(scores, in[1].flatten());
  minimize(*optimizer_, cost, graph_.variables().trainable());
  return {{"cost", cost}};
}

// Updates both players of the GAN from one batch and one pass through the networks.
NamedTensors GpuTraining::play(const std::vector<Tensor>& in) {
  const auto cross_entropy = [](const Tensor& logits, double label) {
    return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, label));
  };
  const Tensor real = gan::discriminator(in[0]);
  const Tensor fake = gan::discriminator(gan::generator(in[1]));
  const Tensor d_loss = (cross_entropy(real, 1) + cross_entropy(fake, 0)) / 2;
  const Tensor g_loss = cross_entropy(fake, 1);
  const Gradients g = compute_gradients(g_loss, graph_.variables().trainable("^gen/"));
  const Gradients d = compute_gradients(d_loss, graph_.variables().trainable("^discrim/"));
  torch::NoGradGuard no_grad;
  optimizer_->apply_gradients(g);
  second_optimizer_->apply_gradients(d);
  return {{"g_loss", g_loss}, {"d_loss", d_loss}};
}

int64_t GpuTraining::parameters() {
  const auto variables = graph_.variables().trainable();
  return std::accumulate(
      variables.begin(), variables.end(), int64_t{0},
      [](int64_t sum, const Variable* variable) { return sum + variable->tensor.numel(); });
}

void synchronize(torch::Device device) {
  if (device.is_cuda()) torch::cuda::synchronize();
}

}  // namespace tensorpack::bench
