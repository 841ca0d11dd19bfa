// SPDX-License-Identifier: Apache-2.0
// The update of ResNet-50's variables against torch::optim, in the same process.
#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "benchmarks/groups.h"
#include "benchmarks/resnet50_shapes.h"
#include "tensorpack/optim/adagrad.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/rmsprop.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/parallel_for.h"
#include "tensorpack/utils/startup.h"

namespace tensorpack::bench {
namespace {

using at::Tensor;

// Our update as a recorded program.
template <typename Ours>
class Update {
 public:
  explicit Update(Ours optimizer) : optimizer_(std::move(optimizer)) {
    tune_process();
    for (const Shape& shape : resnet50_shapes()) gradients_.push_back(at::randn(shape));
    op_ = graph_.define({
        .name = "update",
        .inputs = {},
        .body = [this](const std::vector<Tensor>&) -> NamedTensors {
          TowerContext tower(graph_);
          Gradients gradients;
          for (size_t i = 0; i < gradients_.size(); ++i) {
            const std::string name = "w" + std::to_string(i);
            get_variable(name, gradients_[i].sizes(), init::normal(0.1));
            gradients.push_back({&graph_.variables().at(name), gradients_[i]});
          }
          at::NoGradGuard no_grad;
          optimizer_.apply_gradients(gradients);
          return {};
        },
    });
    session_.run(op_);
  }

  void step() { session_.run(op_); }

 private:
  Ours optimizer_;
  std::vector<Tensor> gradients_;
  Graph graph_;
  Session session_{graph_};
  Op op_;
};

template <typename Theirs, typename Options>
class TorchUpdate {
 public:
  explicit TorchUpdate(Options options) : optimizer_(make_weights(), options) { step(); }
  void step() { optimizer_.step(); }

 private:
  static std::vector<Tensor> make_weights() {
    std::vector<Tensor> weights;
    for (const Shape& shape : resnet50_shapes()) {
      weights.push_back((at::randn(shape) * 0.1).requires_grad_(true));
      weights.back().mutable_grad() = at::randn(shape);
    }
    return weights;
  }
  Theirs optimizer_;
};

int64_t count_numbers() {
  int64_t count = 0;
  for (const Shape& shape : resnet50_shapes()) count += c10::multiply_integers(shape);
  return count;
}

// Bytes per microsecond of a[i] += 2 * b[i] over arrays far larger than the cache.
double bandwidth(const Stopwatch& watch) {
  const int64_t count = 32 << 20;
  const Tensor a = at::zeros({count}), b = at::ones({count});
  float* to = a.data_ptr<float>();
  const float* from = b.data_ptr<float>();
  const Figure figure = watch.measure({.step = [&] {
    parallel_for(count, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] += 2 * from[i];
    });
  }});
  return static_cast<double>(count) * 3 * sizeof(float) / figure.value;
}

// The share of the memory's speed that an update reaches that moves `floats` numbers per weight.
template <typename Ours>
Figure bandwidth_fraction(const Stopwatch& watch, Ours optimizer, int floats) {
  Update<Ours> ours(std::move(optimizer));
  const double best = bandwidth(watch);
  const Figure figure = watch.measure({.step = [&] { ours.step(); }});
  const double moved = static_cast<double>(count_numbers()) * floats * sizeof(float);
  return {.value = moved / figure.value / best,
          .unit = "of a triad's bandwidth",
          .ours = figure.value,
          .repetitions = figure.repetitions};
}

// An update by ours against one by torch::optim.
template <typename Theirs, typename Ours, typename Options>
void add_comparison(Suite& suite, const std::string& name, Ours optimizer, Options options,
                    const std::string& peer_name) {
  suite.add(name, [=](const Stopwatch& watch) {
    Update<Ours> ours(optimizer);
    TorchUpdate<Theirs, Options> theirs(options);
    return watch.compare(
        {.ours = [&] { ours.step(); }, .peer = [&] { theirs.step(); }, .peer_name = peer_name});
  });
}

}  // namespace

void add_optim_benchmarks(Suite& suite) {
  namespace peer = torch::optim;
  add_comparison<peer::Adam>(suite, "optim/adam_vs_torch_optim", Adam({.lr = 1e-3}),
                             peer::AdamOptions(1e-3), "torch::optim::Adam");
  add_comparison<peer::SGD>(suite, "optim/momentum_vs_torch_optim", Momentum(0.1),
                            peer::SGDOptions(0.1).momentum(0.9), "torch::optim::SGD, momentum");
  add_comparison<peer::SGD>(suite, "optim/momentum_decay_vs_torch_optim",
                            SGD({.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4}),
                            peer::SGDOptions(0.1).momentum(0.9).weight_decay(1e-4),
                            "torch::optim::SGD, momentum, decay");
  add_comparison<peer::RMSprop>(suite, "optim/rmsprop_vs_torch_optim", RMSProp({.lr = 1e-3}),
                                peer::RMSpropOptions(1e-3), "torch::optim::RMSprop");
  add_comparison<peer::Adagrad>(suite, "optim/adagrad_vs_torch_optim", Adagrad({.lr = 1e-3}),
                                peer::AdagradOptions(1e-3), "torch::optim::Adagrad");
  // Adam reads four arrays and writes three; momentum reads three and writes two.
  suite.add("optim/adam_bandwidth_fraction",
            [](const Stopwatch& watch) { return bandwidth_fraction(watch, Adam(), 7); });
  suite.add("optim/momentum_bandwidth_fraction",
            [](const Stopwatch& watch) { return bandwidth_fraction(watch, Momentum(), 5); });
}

}  // namespace tensorpack::bench
