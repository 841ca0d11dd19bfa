// SPDX-License-Identifier: Apache-2.0
// One model on a GPU, on several, and in several processes; what processes can do together.
//   devices gpu|gpus|processes|group
#include <algorithm>

#include "examples/command_line.h"
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

Tensor cost(const Tensor& x, const Tensor& y) {
  const Tensor prediction = get_variable("w", {}) * x + get_variable("b", {});
  return named("cost", (prediction - y).square().mean());
}

DataPoint with_label(const DataPoint& p) { return {p[0], 2 * p[0] + 1}; }

Model model() {
  return {.inputs = {{"x", {-1}}, {"y", {-1}}}, .build_graph = cost, .optimizer = SGD({.lr = 0.1})};
}

DataFlowPtr data() { return FakeData({{.low = -1}}, {.size = 512}) | map(with_label); }

// Halves the learning rate after an epoch in which validation got no better. Only rank 0 validates.
HyperParamSetterWithFunc halve_on_plateau() {
  auto next = [best = 1e9](int64_t epoch, double old, const Monitors& monitors) mutable {
    if (epoch == 0) return old;  // before training
    const double cost = monitors.get_latest("validation_cost");
    const bool is_better = cost < best;
    best = std::min(best, cost);
    return is_better ? old : old / 2;
  };
  return HyperParamSetterWithFunc("learning_rate", next, {.decided_by_chief = true});
}

TrainConfig config() {
  return {
      .model = model(),
      .dataflow = data() | batch(32),
      .callbacks = {InferenceRunner(data() | batch(32), {ScalarStats({"cost"})}),
                    halve_on_plateau()},
      .max_epoch = 4,
  };
}

void on_a_gpu(TrainConfig config) {
  config.session = {.precision = Precision::kBFloat16};  // float32 variables, float32 updates
  launch_train_with_config(std::move(config), SimpleTrainer({.device = torch::kCUDA}));
}

void on_four_gpus(TrainConfig config) {
  launch_train_with_config(std::move(config), SyncMultiGPUTrainerReplicated({0, 1, 2, 3}));
}

// As many as mpirun, torchrun or srun started; or: tp launch -n 4 -- devices processes
void in_processes() {
  set_global_seed(7);  // the same run every time
  TrainConfig config{
      .model = model(),
      .dataflow = data() | shard() | batch(32),  // every rank takes its own part
      .callbacks = {ModelSaver(), InferenceRunner(data() | batch(32), {ScalarStats({"cost"})})},
      .max_epoch = 4,
  };
  launch_train_with_config(AutoResumeTrainConfig(std::move(config)), DistributedTrainer());
}

void run_collectives(const Tensor& weights, const Tensor& gradients, int64_t count) {
  const auto group = ProcessGroup::create();       // waits until all ranks have joined
  group->broadcast(weights);                       // from rank 0
  const auto work = group->all_reduce(gradients);  // asynchronous; any number of them at a time
  work->wait();
  const std::string mine = fmt::format("rank {} saw {}", group->rank(), count);
  for (const std::string& line : group->all_gather(mine)) logging::info("{}", line);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Train one model on other devices.");
  std::string where = "processes";
  std::string logdir = "train_log/devices";
  app.add_option("where", where)->check(CLI::IsMember({"gpu", "gpus", "processes", "group"}));
  app.add_option("--logdir", logdir, "Where the log goes");
  return run_example(app, argc, argv, [&] {
    set_logger_dir(logdir, LogDirAction::kKeep);
    if (where == "gpu") on_a_gpu(config());
    if (where == "gpus") on_four_gpus(config());
    if (where == "processes") in_processes();
    if (where == "group") run_collectives(torch::ones({2}), torch::ones({3}), 5);
  });
}
