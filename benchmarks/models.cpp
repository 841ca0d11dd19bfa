// SPDX-License-Identifier: Apache-2.0
// Training steps of whole models of the zoo.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/types.h>

#include "benchmarks/groups.h"
#include "benchmarks/peer_process.h"
#include "examples/models/lenet.h"
#include "examples/models/resnet.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack::bench {
namespace {

using Network = Tensor (*)(const Tensor& image);

// Steps on one batch.
class ModelTraining {
 public:
  ModelTraining(Network network, std::vector<int64_t> shape,
                Precision precision = Precision::kFloat32)
      : session_(graph_, {.precision = precision}) {
    tune_process();
    op_ = graph_.define({
        .name = "train",
        .inputs = {{"image", shape}, {"label", {shape[0]}, torch::kLong}},
        .body = [this, network](const std::vector<Tensor>& in) -> NamedTensors {
          TowerContext tower(graph_);
          const TowerFunc logits = [network](const Tensor& image) { return network(image); };
          const Tensor cost =
              torch::cross_entropy_loss(logits({in[0]})[0].to(torch::kFloat), in[1]);
          minimize(optimizer_, cost, graph_.variables().trainable());
          return {{"cost", cost}};
        },
    });
    feeds_ = {{"image", torch::randn(shape)},
              {"label", torch::randint(10, {shape[0]}, torch::kLong)}};
  }

  void step() { session_.run(op_, {"cost"}, feeds_); }

 private:
  SGD optimizer_ = Momentum(0.01);
  Graph graph_;
  Session session_;
  Op op_;
  Feeds feeds_;
};

// The network of the example on Fashion-MNIST, without its dropout.
Tensor small_cnn(const Tensor& image) {
  ArgScope scope(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
  Tensor l = MaxPooling("pool0", Conv2D("conv0", image, {.filters = 32}), 2);
  l = MaxPooling("pool1", Conv2D("conv1", l, {.filters = 64}), 2);
  l = FullyConnected("fc0", l, {.units = 128, .activation = torch::relu});
  return FullyConnected("fc1", l, {.units = 10});
}

Tensor lenet(const Tensor& image) { return examples::lenet(image); }
Tensor resnet18(const Tensor& image) { return examples::resnet18(image, 10); }

Figure bf16_against_fp32(const Stopwatch& watch) {
  const std::vector<int64_t> shape = {8, 3, 112, 112};
  ModelTraining mixed(resnet18, shape, Precision::kBFloat16);
  ModelTraining full(resnet18, shape);
  return watch.compare({.ours = [&] { mixed.step(); },
                        .peer = [&] { full.step(); },
                        .peer_name = "the same in float32",
                        .repetitions = 5});
}

Figure small_cnn_against_python(const Stopwatch& watch) {
  ModelTraining training(small_cnn, {128, 1, 28, 28});
  return watch.compare({
      .ours = [&] { training.step(); },
      .peer =
          PeerProcess::python("engine.py", {"small_cnn", std::to_string(at::get_num_threads())}),
      .peer_name = "python3-torch",
  });
}

// Percent of the test images of Fashion-MNIST that a network gets right after a short training.
double accuracy_of(Network network, Precision precision) {
  set_global_seed(1);
  torch::manual_seed(1);
  SimpleTrainer trainer;
  launch_train_with_config(
      {
          .model = Model{.inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
                         .build_graph =
                             [network](const Tensor& image, const Tensor& label) {
                               const Tensor logits = network(image.unsqueeze(1)).to(torch::kFloat);
                               named("incorrect_vector", prediction_incorrect(logits, label));
                               return torch::cross_entropy_loss(logits, label);
                             },
                         .optimizer = Adam({.lr = 1e-3})},
          .dataflow = FashionMnist("train") | batch(128),
          .callbacks = {InferenceRunner(FashionMnist("test") | batch(500),
                                        {ClassificationError()})},
          .monitors = OwnedList<MonitorBase>(),
          .session = {.precision = precision},
          .max_epoch = 3,
      },
      trainer);
  return 100 * (1 - trainer.monitors().get_latest("validation_error"));
}

void add_accuracy(Suite& suite, const std::string& name, Network network) {
  suite.add("models/" + name + "_bf16_accuracy_points", [network](const Stopwatch&) {
    const double full = accuracy_of(network, Precision::kFloat32);
    const double mixed = accuracy_of(network, Precision::kBFloat16);
    return Figure{.value = mixed - full,
                  .unit = "points",
                  .peer_name = "the same in float32",
                  .note = fmt::format("{:.2f} against {:.2f} % right", mixed, full)};
  });
}

}  // namespace

void add_models_benchmarks(Suite& suite) {
  suite.add("models/small_cnn_vs_python", small_cnn_against_python);
  suite.add("models/resnet18_bf16_vs_fp32", bf16_against_fp32);
  add_accuracy(suite, "lenet", lenet);
  add_accuracy(suite, "resnet18", resnet18);
}

}  // namespace tensorpack::bench
