// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/accuracy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <future>
#include <iostream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "benchmarks/gpu/answers.h"
#include "benchmarks/peer_process.h"
#include "examples/models/resnet.h"
#include "tensorpack/tensorpack.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack::bench {
namespace {

constexpr int64_t kBatch = 128;
constexpr int64_t kEpochs = 3;
constexpr uint64_t kSeeds = 3;

// That of examples/basics/fashion_mnist.cpp.
Tensor example_network(const Tensor& image) {
  ArgScope scope(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
  Tensor l = MaxPooling("pool0", Conv2D("conv0", image, {.filters = 32}), 2);
  l = MaxPooling("pool1", Conv2D("conv1", l, {.filters = 64}), 2);
  l = FullyConnected("fc0", l, {.units = 128, .activation = torch::relu});
  return FullyConnected("fc1", Dropout("dropout", l, {.rate = 0.3}), {.units = 10});
}

Model model(const std::string& name) {
  const bool is_resnet = name == "resnet18";
  return {
      .inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
      .build_graph =
          [is_resnet](const Tensor& image, const Tensor& label) {
            const Tensor input = image.unsqueeze(1) * 2 - 1;
            const Tensor logits = is_resnet ? examples::resnet18(input.expand({-1, 3, -1, -1}), 10)
                                            : example_network(input);
            named("accuracy", (logits.argmax(1) == label).to(torch::kFloat32).mean());
            return named("cost", torch::cross_entropy_loss(logits.to(torch::kFloat), label));
          },
      .optimizer =
          is_resnet ? Owned<Optimizer>(Momentum(0.02)) : Owned<Optimizer>(Adam({.lr = 1e-3})),
  };
}

double train(const AccuracyRun& run, c10::Device device) {
  set_global_seed(run.seed);
  TrainConfig config{
      .model = model(run.model),
      .data = QueueInput(FashionMnist("train", {.seed = run.seed}) | batch(kBatch)),
      .callbacks = {InferenceRunner(FashionMnist("test") | batch(250),
                                    {ScalarStats({"accuracy"})})},
      .extra_callbacks = OwnedList<Callback>{},
      .monitors = OwnedList<MonitorBase>{},
      .session = {.precision = Precision::kBFloat16,
                  .fusion = run.fused ? Fusion::kDefault : Fusion::kNone},
      .max_epoch = kEpochs,
  };
  SimpleTrainer trainer({.device = device});
  launch_train_with_config(std::move(config), trainer);
  return trainer.monitors().get_latest("validation_accuracy");
}

std::vector<double> accuracies(const std::string& model, bool fused) {
  std::vector<std::future<double>> running;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<std::string> command = {std::filesystem::read_symlink("/proc/self/exe").string(),
                                        "--accuracy", model, "--seed", std::to_string(seed)};
    if (!fused) command.emplace_back("--unfused");
    running.push_back(std::async(std::launch::async, [command] {
      return nlohmann::json::parse(PeerProcess(command).facts()).at("accuracy").get<double>();
    }));
  }
  std::vector<double> found;
  for (auto& one : running) found.push_back(one.get());
  return found;
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Figure compare(const std::string& model) {
  auto others = std::async(std::launch::async, accuracies, model, /*fused=*/false);
  const std::vector<double> ours = accuracies(model, /*fused=*/true), theirs = others.get();
  const auto [low, high] = std::minmax_element(theirs.begin(), theirs.end());
  return {
      .value = 100 * (mean(ours) - mean(theirs)),
      .unit = "points",
      .peer_name = "ours, without fusion",
      .repetitions = static_cast<int>(kSeeds),
      .note = fmt::format("{:.4f} against {:.4f}, whose seeds differ by {:.2f} points",
                          fmt::join(ours, " "), fmt::join(theirs, " "), 100 * (*high - *low)),
  };
}

}  // namespace

void add_accuracy_benchmarks(Suite& suite) {
  for (const char* name : {"fashion_mnist", "resnet18"}) {
    suite.add(fmt::format("gpu/{}_accuracy", name),
              [name](const Stopwatch&) { return compare(name); });
  }
}

void serve_accuracy(const AccuracyRun& run, c10::Device device) {
  Answers answers;
  tune_process();
  answers.write(fmt::format(R"(ready {{"accuracy": {}}})", train(run, device)));
  for (std::string request; std::getline(std::cin, request);) answers.write("0");
}

}  // namespace tensorpack::bench
