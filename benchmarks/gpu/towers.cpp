// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/gpu/towers.h"

#include <torch/cuda.h>

#include "benchmarks/gpu/training.h"
#include "examples/models/resnet.h"
#include "tensorpack/distributed/free_port.h"
#include "tensorpack/tensorpack.h"

namespace tensorpack::bench {
namespace {

const torch::Device kGpu(torch::kCUDA, 0);
constexpr int64_t kWholeBatch = 256;

TowerDefinition resnet50(const std::shared_ptr<Optimizer>& optimizer, int64_t batch) {
  const Tensor images =
      torch::randn({batch, 3, 224, 224}).to(kGpu).contiguous(torch::MemoryFormat::ChannelsLast);
  const Tensor labels =
      torch::randint(0, 1000, {batch}, torch::TensorOptions(torch::kLong)).to(kGpu);
  return {.inputs = {{"image", {-1, 3, 224, 224}}, {"label", {-1}, torch::kLong}},
          .function =
              [](const Tensor& image, const Tensor& label) {
                const Tensor logits = examples::resnet50(image);
                return named("cost", torch::cross_entropy_loss(logits.to(torch::kFloat), label));
              },
          .body = [optimizer](TowerContext& tower) { minimize(*optimizer, tower.outputs()[0]); },
          .feeder = [batch = std::vector{images, labels}] { return batch; }};
}

// ResNet-50 in bfloat16 on 256 images a step.
class ResNetTowers {
 public:
  /// With an exchange also for one tower, if `exchange` is set.
  explicit ResNetTowers(const DataParallel& parallel,
                        std::shared_ptr<ExchangeGroup> exchange = nullptr)
      : graph_({.device = kGpu}) {
    const auto optimizer = std::make_shared<SGD>(Momentum(0.01));
    const auto count = static_cast<int>(parallel.devices.size());
    std::vector<Op> towers;
    for (int i = 0; i < count; ++i) {
      TowerOptions options = tower_options(parallel, i);
      options.exchanges = count > 1 || exchange != nullptr;
      TowerDefinition definition = resnet50(optimizer, kWholeBatch / count);
      definition.op_name = "tower" + std::to_string(i);
      towers.push_back(define_tower(graph_, options, std::move(definition)).op());
    }
    if (count > 1) exchange = make_exchange(parallel);
    op_ = exchange ? Op::parallel("step", towers, exchange) : towers[0];
    graph_.finalize();
    session_ = std::make_unique<Session>(graph_, SessionOptions{.precision = Precision::kBFloat16});
  }

  double seconds(int64_t steps) {
    synchronize(kGpu);
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) session_->run(op_);
    synchronize(kGpu);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

 private:
  Graph graph_;
  Op op_;
  std::unique_ptr<Session> session_;
};

Figure compare(const Stopwatch& watch, ResNetTowers& ours, ResNetTowers& one,
               const std::string& peer_name) {
  return watch.compare({.ours = [&](int64_t steps) { return ours.seconds(steps); },
                        .peer = [&](int64_t steps) { return one.seconds(steps); },
                        .peer_name = peer_name,
                        .repetitions = 5,
                        .min_seconds = 0.5});
}

Figure two_towers(const Stopwatch& watch) {
  ResNetTowers two({.devices = {0, 0}});
  ResNetTowers one({.devices = {0}});
  return compare(watch, two, one, "one tower with the double batch");
}

Figure nccl_of_one_rank(const Stopwatch& watch) {
  const auto nccl = ProcessGroup::create({.environment = {.master_port = free_port()},
                                          .device = kGpu,
                                          .backend = CollectiveBackend::kNccl});
  ResNetTowers with({.devices = {0}}, make_process_exchange({.processes = nccl}));
  ResNetTowers without({.devices = {0}});
  return compare(watch, with, without, "the same step without an exchange");
}

}  // namespace

void add_towers_benchmarks(Suite& suite) {
  suite.add("gpu/resnet50_two_towers_vs_one", two_towers);
  suite.add("gpu/resnet50_nccl_one_rank_vs_none", nccl_of_one_rank);
}

}  // namespace tensorpack::bench
