// SPDX-License-Identifier: Apache-2.0
// Replaying a recorded training step against calling the function every time.
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include <chrono>
#include <filesystem>

#include "benchmarks/engine_models.h"
#include "benchmarks/graph_parameters.h"
#include "benchmarks/groups.h"
#include "benchmarks/peer_process.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/cpu_allocator.h"
#include "tensorpack/utils/shared_machine.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack::bench {
namespace {

// One model, trained by one executor.
class Training {
 public:
  Training(const std::string& model, ExecutorKind executor, Fusion fusion = Fusion::kDefault)
      : Training(model, {.executor = executor, .fusion = fusion}) {}
  Training(const std::string& model, SessionOptions options)
      : work_(workload(model)), session_(graph_, options) {
    tune_process();
    std::vector<int64_t> shape = work_.batch;
    op_ = graph_.define({
        .name = model,
        .inputs = {{"x", shape}, {"label", {shape[0]}, at::kLong}},
        .body = [this](const std::vector<at::Tensor>& in) -> NamedTensors {
          TowerContext tower(graph_);
          GraphParameters parameters;
          const at::Tensor cost =
              at::cross_entropy_loss(logits_of(work_.model, parameters, in[0]), in[1]);
          minimize(optimizer_, cost, graph_.variables().trainable());
          return {{"cost", cost}};
        },
    });
    graph_.finalize();
    feeds_ = {{"x", at::randn(shape)},
              {"label", at::randint(0, 10, {shape[0]}, at::TensorOptions(at::kLong))}};
  }

  void step() { session_.run(op_, {"cost"}, feeds_); }

 private:
  Workload work_;
  SGD optimizer_ = Momentum(0.01);
  Graph graph_;
  Session session_;
  Op op_;
  Feeds feeds_;
};

double seconds_of(Training& training) {
  const auto start = std::chrono::steady_clock::now();
  training.step();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double seconds_of(Training& training, int64_t steps) {
  double seconds = 0;
  for (int64_t i = 0; i < steps; ++i) seconds += seconds_of(training);
  return seconds;
}

PeerProcess stock_eager(const std::string& model) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return PeerProcess(
      {(program / "bench_engine_peer").string(), model, std::to_string(at::get_num_threads())});
}

Figure against_stock(const Stopwatch& watch, const std::string& model) {
  Training replay(model, ExecutorKind::kReplay);
  return watch.compare({
      .ours = [&] { replay.step(); },
      .peer = stock_eager(model),
      .peer_name = "eager libtorch, default allocator",
  });
}

Figure against_pooled(const Stopwatch& watch, const std::string& model) {
  Training replay(model, ExecutorKind::kReplay);
  Training eager(model, ExecutorKind::kEager);
  return watch.compare({
      .ours = [&] { replay.step(); },
      .peer = [&] { eager.step(); },
      .peer_name = "eager libtorch, our allocator",
  });
}

Figure against_unfused(const Stopwatch& watch, const std::string& model) {
  Training fused(model, ExecutorKind::kReplay);
  Training unfused(model, ExecutorKind::kReplay, Fusion::kNone);
  return watch.compare({
      .ours = [&] { fused.step(); },
      .peer = [&] { unfused.step(); },
      .peer_name = "libtorch's kernels alone",
  });
}

Figure against_python(const Stopwatch& watch, const std::string& model) {
  Training replay(model, ExecutorKind::kReplay);
  return watch.compare({
      .ours = [&] { replay.step(); },
      .peer = PeerProcess::python("engine.py", {model, std::to_string(at::get_num_threads())}),
      .peer_name = "python3-torch",
  });
}

// What an epoch of 500 steps, the first of a training, loses by comparing the function again.
Figure verifying_again(const Stopwatch&, const std::string& model) {
  constexpr int64_t kSteps = 500;
  constexpr int64_t kTurns = 50;
  Training verified(model, SessionOptions{.verify_again = true});
  Training unverified(model, SessionOptions{.verify_again = false});
  for (Training* training : {&verified, &unverified}) training->step();  // prepares
  double with = 0;
  double without = 0;
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    with += seconds_of(verified, kSteps / kTurns);
    without += seconds_of(unverified, kSteps / kTurns);
  }
  return {.value = without / with, .peer_name = "never compared again"};
}

double peak_megabytes(ExecutorKind executor) {
  Training training("resnet18", executor);
  for (int i = 0; i < 2; ++i) training.step();
  reset_peak_cpu_memory();
  training.step();
  return static_cast<double>(cpu_memory_stats().peak_bytes_in_use) / (1 << 20);
}

Figure peak_memory(const Stopwatch&) {
  const double ours = peak_megabytes(ExecutorKind::kReplay);
  const double peer = peak_megabytes(ExecutorKind::kEager);
  if (ours == 0) throw Skip("the caching allocator is not installed");
  return {.value = peer / ours, .peer_name = "eager"};
}

// The first run records, plans, verifies and replays.
Figure record_cost(const Stopwatch&) {
  Training eager("lenet", ExecutorKind::kEager);
  for (int i = 0; i < 5; ++i) eager.step();
  double step = seconds_of(eager);
  for (int i = 0; i < 10; ++i) step = std::min(step, seconds_of(eager));
  Training replay("lenet", ExecutorKind::kReplay);
  return {.value = seconds_of(replay) / step, .unit = "eager steps", .peer_name = "eager"};
}

// What a quiet machine would lose if OpenMP's threads always slept (see utils/shared_machine.h).
Figure passive_against_spinning(const Stopwatch& watch, const std::string& model) {
  Training training(model, ExecutorKind::kReplay);
  return watch.compare({
      .ours =
          [&](int64_t steps) {
            const PassiveWaiting passive;
            return seconds_of(training, steps);
          },
      .peer = [&](int64_t steps) { return seconds_of(training, steps); },
      .peer_name = "spinning",
  });
}

// What it costs a step to ask whether others use the machine.
Figure look_at_the_machine(const Stopwatch& watch) {
  SharedMachine machine;
  return watch.measure({.step = [&] { machine.look(); }});
}

}  // namespace

void add_engine_benchmarks(Suite& suite) {
  const auto add = [&](const std::string& name, auto function, const std::string& model) {
    suite.add("engine/" + name, [=](const Stopwatch& watch) { return function(watch, model); });
  };
  add("mlp64_replay_vs_eager", against_stock, "mlp64");
  add("lenet_replay_vs_stock_eager", against_stock, "lenet");
  add("resnet18_replay_vs_stock_eager", against_stock, "resnet18");
  add("lenet_replay_vs_pooled_eager", against_pooled, "lenet");
  add("resnet18_replay_vs_pooled_eager", against_pooled, "resnet18");
  add("lenet_fused_vs_unfused", against_unfused, "lenet");
  add("resnet18_fused_vs_unfused", against_unfused, "resnet18");
  add("mlp64_vs_python", against_python, "mlp64");
  add("lenet_vs_python", against_python, "lenet");
  add("lenet_passive_vs_spinning", passive_against_spinning, "lenet");
  add("mlp64_passive_vs_spinning", passive_against_spinning, "mlp64");
  add("mlp64_verified_again_vs_not", verifying_again, "mlp64");
  add("lenet_verified_again_vs_not", verifying_again, "lenet");
  suite.add("engine/look_at_the_machine", look_at_the_machine);
  suite.add("engine/resnet18_peak_memory_vs_eager", peak_memory);
  suite.add("engine/record_cost_in_eager_steps", record_cost);
}

}  // namespace tensorpack::bench
