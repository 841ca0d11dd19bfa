// SPDX-License-Identifier: Apache-2.0
// Trainings whose updates write copies of weights, beside the same without, while others change the
// weights, too.
#pragma once

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tests/support/capture.h"

namespace tensorpack::cuda {

/// A network, what trains it, and an op that changes its weights otherwise.
class CopyingTraining {
 public:
  CopyingTraining(c10::Device device, Owned<Optimizer> optimizer,
                  std::unique_ptr<Lowering> lowering)
      : graph_({.device = device, .seed = 5}),
        optimizer_(std::move(optimizer)),
        executor_(graph_, {.precision = Precision::kBFloat16}, std::move(lowering)) {
    train_ = define("train", [this](const at::Tensor& cost) {
      minimize(*optimizer_, cost, graph_.variables().trainable());
    });
    train_half_ = define("train_half", [this](const at::Tensor& cost) {
      minimize(*optimizer_, cost * 0.5, graph_.variables().trainable());
    });
    decay_ = define("decay", [this](const at::Tensor&) {
      const at::NoGradGuard no_grad;
      for (Variable* variable : graph_.variables().trainable()) variable->tensor.mul_(0.75);
    });
  }

  /// Their costs.
  at::Tensor train(int i) { return run(train_, i, {"cost"}); }
  at::Tensor train_half(int i) { return run(train_half_, i, {"cost"}); }
  at::Tensor decay(int i) { return run(decay_, i, {"cost"}); }
  /// Another set of fetches is another program.
  at::Tensor train_fetching_both(int i) { return run(train_, i, {"cost", "result"}); }

  std::vector<Variable*> weights() { return graph_.variables().trainable(); }
  const at::Tensor& weight(int i) { return weights()[static_cast<size_t>(i) % 4]->tensor; }

  /// In what these options make of the training.
  int64_t kept_copies(const PassSwitches& fusion) const {
    Trace trace = *executor_.recorded(train_);
    optimize(trace, {"cost"}, fusion);
    int64_t copies = 0;
    for (const Node& node : trace.nodes) {
      if (node.op_name() == "tensorpack::make_copies_") copies += std::ssize(node.arguments[0].ids);
    }
    return copies;
  }

 private:
  Op define(const std::string& name, std::function<void(const at::Tensor&)> finish) {
    return graph_.define({
        .name = name,
        .inputs = {{"x", {6, 8}}},
        .body = [this, finish](const std::vector<at::Tensor>& in) -> NamedTensors {
          TowerContext tower(graph_);
          const TowerFunc network = [](const at::Tensor& x) {
            // Put together, as the weights of queries, keys and values are.
            const at::Tensor a = get_variable("a", {7, 8}, init::normal(0.3));
            const at::Tensor b = get_variable("b", {9, 8}, init::normal(0.3));
            return FullyConnected("fc", at::linear(x, at::cat({a, b})).relu(), {.units = 3});
          };
          const at::Tensor result = network({in[0]})[0].to(at::kFloat);
          const at::Tensor cost = result.square().mean();
          finish(cost);
          return {{"cost", cost}, {"result", result}};
        },
    });
  }

  at::Tensor run(const Op& op, int i, const std::vector<std::string>& fetches) {
    const at::Tensor batch = at::arange(48).reshape({6, 8}).div(25).sub(i % 3);
    return executor_.run(op, {batch.to(op.device())}, fetches)[0].cpu();
  }

  Graph graph_;
  Owned<Optimizer> optimizer_;
  ProgramExecutor executor_;
  Op train_, train_half_, decay_;
};

/// Changes weights or not, takes one step and returns its cost.
using StepOfTraining = std::function<at::Tensor(CopyingTraining&, int i)>;

inline at::Tensor assign_between(CopyingTraining& training, int i) {
  const Variable& weight = *training.weights()[static_cast<size_t>(i) % 4];
  if (i % 3 == 1) weight.assign(at::full_like(weight.tensor, 0.125 * i));
  return training.train(i);
}

inline at::Tensor write_between(CopyingTraining& training, int i) {
  const at::NoGradGuard no_grad;
  const at::Tensor& weight = training.weight(i);
  if (i == 3) weight.detach().mul_(3);
  if (i == 5) weight.view({-1}).narrow(0, 1, 2).fill_(1);
  if (i == 7) weight.sub_(weight.mean());
  return training.train(i);
}

inline at::Tensor run_another_op_between(CopyingTraining& training, int i) {
  if (i == 3 || i == 6) training.decay(i);
  return training.train(i);
}

inline at::Tensor train_in_turns(CopyingTraining& training, int i) {
  return i % 3 == 1 ? training.train_half(i) : training.train(i);
}

inline at::Tensor fetch_in_turns(CopyingTraining& training, int i) {
  return i % 3 == 1 ? training.train_fetching_both(i) : training.train(i);
}

/// Costs and weights have the same bits with copies and without, for every optimizer that writes
/// copies.
inline void expect_same_training(
    c10::Device device, PassSwitches fusion,
    const std::function<std::unique_ptr<Lowering>(const PassSwitches&)>& make_lowering,
    const StepOfTraining& step) {
  const std::vector<std::function<Owned<Optimizer>()>> optimizers = {
      [] { return SGD({.lr = 0.05}); },
      [] { return SGD({.lr = 0.02, .momentum = 0.9}); },
      [] { return Adam({.lr = 0.01}); },
  };
  for (size_t k = 0; k < optimizers.size(); ++k) {
    SCOPED_TRACE("optimizer " + std::to_string(k));
    CopyingTraining plain(device, optimizers[k](), make_lowering(fusion));
    fusion.keep_copies = true;
    CopyingTraining copying(device, optimizers[k](), make_lowering(fusion));
    const std::string log = stdout_of([&] {
      for (int i = 0; i < 10; ++i) {
        const at::Tensor expected = step(plain, i), found = step(copying, i);
        EXPECT_TRUE(expected.isfinite().item<bool>()) << "step " << i;
        EXPECT_TRUE(at::equal(found, expected)) << "step " << i;
      }
    });
    EXPECT_THAT(log, testing::Not(testing::HasSubstr("made before every step")));
    // A bias may be cast by a fused operator.
    EXPECT_GE(copying.kept_copies(fusion), std::ssize(copying.weights()) - 1);
    fusion.keep_copies = false;
    EXPECT_EQ(plain.kept_copies(fusion), 0);
    for (size_t i = 0; i < plain.weights().size(); ++i) {
      EXPECT_TRUE(at::equal(copying.weights()[i]->tensor, plain.weights()[i]->tensor)) << i;
    }
  }
}

}  // namespace tensorpack::cuda
