// SPDX-License-Identifier: Apache-2.0
// Training steps of whole models of the zoo.
#include <fmt/format.h>
#include <torch/types.h>

#include "benchmarks/groups.h"
#include "examples/models/lenet.h"
#include "examples/models/resnet.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack::bench {
namespace {

class ResNet18 {
 public:
  explicit ResNet18(bool mixed) {
    tune_process();
    op_ = graph_.define({
        .name = "resnet18",
        .inputs = {{"x", {8, 3, 112, 112}}, {"label", {8}, torch::kLong}},
        .body = [this, mixed](const std::vector<Tensor>& in) -> NamedTensors {
          TowerContext tower(graph_);
          const Tensor logits = [&] {
            const MixedPrecision precision(mixed ? Precision::kBFloat16 : Precision::kFloat32);
            return examples::resnet18(in[0], 10);
          }();
          const Tensor cost = torch::cross_entropy_loss(logits.to(torch::kFloat), in[1]);
          minimize(optimizer_, cost, graph_.variables().trainable());
          return {{"cost", cost}};
        },
    });
    feeds_ = {{"x", torch::randn({8, 3, 112, 112})}, {"label", torch::arange(8)}};
  }

  void step() { session_.run(op_, {"cost"}, feeds_); }

 private:
  SGD optimizer_ = Momentum(0.01);
  Graph graph_{{.channels_last = true}};
  Session session_{graph_};
  Op op_;
  Feeds feeds_;
};

using Network = Tensor (*)(const Tensor& image);

// Percent of the test images of Fashion-MNIST that a network gets right after a short training.
double accuracy_of(Network network, Precision precision) {
  set_global_seed(1);
  torch::manual_seed(1);
  SimpleTrainer trainer;
  launch_train_with_config(
      {
          .model = {.inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
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
  suite.add("models/resnet18_bf16_vs_fp32", [](const Stopwatch& watch) {
    ResNet18 mixed(true), full(false);
    return watch.compare({.ours = [&] { mixed.step(); },
                          .peer = [&] { full.step(); },
                          .peer_name = "the same in float32",
                          .repetitions = 5});
  });
  add_accuracy(suite, "lenet", [](const Tensor& image) { return examples::lenet(image); });
  add_accuracy(suite, "resnet18",
               [](const Tensor& image) { return examples::resnet18(image, 10); });
}

}  // namespace tensorpack::bench
