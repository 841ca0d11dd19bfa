// SPDX-License-Identifier: Apache-2.0
// Copies of weights that updates write, on traces of the CPU, and in whole trainings by replay.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/kept_copies.h"
#include "tensorpack/graph/patterns.h"
#include "tensorpack/models/attention.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::Contains;
using testing::IsEmpty;
using testing::Not;

const Tensors kRows{at::arange(12).reshape({4, 3}).to(at::kFloat).div(7)};

// Weights that a step reads in 16 bits, and updates by something like their gradients.
struct Weights {
  at::Tensor a = at::rand({5, 3}), b = at::rand({2, 3}), bias = at::rand({5});
  at::Tensor lr = at::full({}, 0.1);

  Tensors all() const { return {a, b, bias, lr}; }

  void update(const at::Tensor& y, std::vector<at::Tensor> variables) const {
    Tensors gradients;
    for (const at::Tensor& variable : variables) {
      gradients.push_back((y.to(at::kFloat).mean() * variable).sin());
    }
    kernels::sgd_(variables, {}, gradients, lr, {.weight_decay = 0.1});
  }
};

// The kept copies of a trace, with the variables that they are of.
std::vector<std::pair<at::Tensor, at::Tensor>> kept_copies(const Trace& trace) {
  std::vector<std::pair<at::Tensor, at::Tensor>> found;
  for (const Node& node : trace.nodes) {
    if (!is_op(node, "tensorpack::make_copies_")) continue;
    for (size_t i = 0; i < node.arguments[0].ids.size(); ++i) {
      found.emplace_back(trace.values[node.arguments[0].ids[i]].tensor,
                         trace.values[node.arguments[1].ids[i]].tensor);
    }
  }
  return found;
}

int casts_of_variables(const Trace& trace) {
  int casts = 0;
  for (const Node& node : trace.nodes) {
    if (!is_op(node, "tensorpack::cast_together") && !is_op(node, "aten::_to_copy")) continue;
    node.for_each_argument(
        [&](ValueId id) { casts += trace.values[id].kind == ValueKind::kVariable; });
  }
  return casts;
}

using StepOfWeights = std::function<NamedTensors(const Weights&, const at::Tensor& x)>;

// What steps of the trace give: the outputs of each, and in the end the variables.
Tensors outcome_of_steps(Trace trace, const Weights& weights) {
  const auto copies = kept_copies(trace);
  std::vector<std::string> fetches;
  for (const auto& [name, id] : trace.outputs) fetches.push_back(name);
  KeptCopies kept(trace);
  Program program(trace, fetches);
  Tensors found;
  for (int i = 0; i < 4; ++i) {
    const KeptCopies::Run run(kept);
    for (const at::Tensor& value : program.run({kRows[0] + i})) found.push_back(value.clone());
    for (const auto& [copy, variable] : copies) {
      EXPECT_TRUE(at::equal(copy, variable.to(copy.scalar_type()))) << "after step " << i;
    }
  }
  for (const at::Tensor& variable : weights.all()) found.push_back(variable.clone());
  return found;
}

// The pass keeps copies of so many variables, and steps give the bits that they gave without.
Trace expect_kept(int variables, const StepOfWeights& step) {
  at::manual_seed(4);
  const Weights plain;
  Weights weights;
  for (auto [to, from] : {std::pair(&weights.a, &plain.a), std::pair(&weights.b, &plain.b),
                          std::pair(&weights.bias, &plain.bias)}) {
    *to = from->clone();
  }
  const auto record = [&](const Weights& of) {
    const Tensors before = {of.a.clone(), of.b.clone(), of.bias.clone()};
    Trace trace = trace_of(kRows, of.all(), [&](const Tensors& in) { return step(of, in[0]); });
    of.a.copy_(before[0]), of.b.copy_(before[1]), of.bias.copy_(before[2]);
    batch_casts(trace, at::kCPU);
    return trace;
  };
  const Trace expected = record(plain);
  Trace trace = record(weights);
  EXPECT_EQ(keep_copies(trace, at::kCPU), variables);
  if (variables == 0) {
    EXPECT_EQ(operators(trace), operators(expected));
  }
  const Tensors values = outcome_of_steps(trace, weights);
  const Tensors expected_values = outcome_of_steps(expected, plain);
  EXPECT_EQ(values.size(), expected_values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_TRUE(at::equal(values[i], expected_values[i])) << i;
  }
  return trace;
}

at::Tensor short_of(const at::Tensor& tensor) { return tensor.to(at::kBFloat16); }

TEST(KeepCopiesTest, CastsAreMadeByTheUpdate) {
  const Trace trace = expect_kept(3, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
    const at::Tensor y = at::addmm(short_of(w.bias), short_of(x), short_of(w.a).t());
    const at::Tensor z = at::mm(short_of(x), short_of(w.b).t());
    w.update(y + z.sum(), {w.a, w.b, w.bias});
    return {{"y", y}, {"z", z}};
  });
  EXPECT_EQ(count(trace, "tensorpack::make_copies_"), 1);
  EXPECT_EQ(count(trace, "tensorpack::sgd_and_copies_"), 1);
  EXPECT_EQ(count(trace, "tensorpack::sgd_"), 0);
  EXPECT_EQ(casts_of_variables(trace), 0);
}

TEST(KeepCopiesTest, ACastThatIsMadeAloneIsKept) {
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    expect_kept(1, [type](const Weights& w, const at::Tensor& x) -> NamedTensors {
      const at::Tensor y = x.sum() * w.a.to(type);
      w.update(y, {w.b, w.a});
      return {{"y", y}};
    });
  }
}

TEST(KeepCopiesTest, PartsOfWhatIsPutTogetherAreWrittenWhereTheyLie) {
  const Trace trace = expect_kept(3, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
    const at::Tensor both = short_of(at::cat({w.b, w.a}));
    const at::Tensor y = at::mm(short_of(x), both.t());
    w.update(y + short_of(w.bias).sum(), {w.a, w.bias, w.b});
    return {{"y", y}};
  });
  const auto copies = kept_copies(trace);
  ASSERT_EQ(copies.size(), 3U);
  EXPECT_EQ(copies[0].first.storage_offset() + copies[1].first.storage_offset() +
                copies[2].first.storage_offset(),
            2 * 3);  // that of `a`
}

TEST(KeepCopiesTest, SeveralUpdatesWriteTheirOwn) {
  const Trace trace = expect_kept(2, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
    const at::Tensor y = x.sum() * short_of(at::cat({w.a, w.b}));
    w.update(y, {w.b});
    w.update(y, {w.a});
    return {};
  });
  EXPECT_EQ(count(trace, "tensorpack::sgd_and_copies_"), 2);
}

TEST(KeepCopiesTest, OtherCastsThatWereMadeWithThemStay) {
  const Trace trace = expect_kept(1, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
    const at::Tensor both = short_of(at::cat({w.b, w.b + 0}));
    const at::Tensor y = x.sum() * short_of(w.a).sum() * short_of(w.bias).sum() * both;
    w.update(y, {w.a});
    return {{"y", y}};
  });
  EXPECT_EQ(count(trace, "tensorpack::cast_together"), 1);
  EXPECT_EQ(casts_of_variables(trace), 2);  // b and bias
}

TEST(KeepCopiesTest, WhatOthersSeeOrWriteIsLeftAlone) {
  using Named = NamedTensors;
  const std::vector<std::pair<const char*, StepOfWeights>> steps = {
      {"the copy is fetched",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a);
         w.update(x.sum() * copy, {w.a});
         return {{"copy", copy}};
       }},
      {"a view of the copy is fetched",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a).t();
         w.update(x.sum() * copy, {w.a});
         return {{"copy", copy}};
       }},
      {"the copy is read after the update",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a);
         w.update(x.sum() * copy, {w.a});
         return {{"y", copy + 1}};
       }},
      {"a part is updated before the copy is read",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor both = short_of(at::cat({w.a, w.b}));
         w.update(x, {w.a});
         w.update(x.sum() * both, {w.b});
         return {};
       }},
      {"the copy is written",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor copy = short_of(w.a);
         copy.mul_(2);
         w.update(x.sum() * copy, {w.a});
         return {};
       }},
      {"it is cast after the update",
       [](const Weights& w, const at::Tensor& x) -> Named {
         w.update(x, {w.a});
         return {{"y", x.sum() * short_of(w.a)}};
       }},
      {"the variable is written by somebody else, too",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a);
         w.update(y, {w.a});
         w.a.clamp_(-1, 1);
         return {{"y", y}};
       }},
      {"the variable is written through a view, too",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a);
         w.a.view({15}).mul_(0.5);
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"the variable is not updated",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a);
         w.update(y, {w.b});
         return {{"y", y}};
       }},
      {"a view of the variable is cast",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(w.a.t());
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"what is put together has something else",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(at::cat({w.a, x}));
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"it is put together with itself",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * short_of(at::cat({w.a, w.a}));
         w.update(y, {w.a});
         return {{"y", y}};
       }},
      {"the cast is to float64",
       [](const Weights& w, const at::Tensor& x) -> Named {
         const at::Tensor y = x.sum() * w.a.to(at::kDouble);
         w.update(y, {w.a});
         return {{"y", y}};
       }},
  };
  for (const auto& [why, step] : steps) {
    SCOPED_TRACE(why);
    const Trace trace = expect_kept(0, step);
    EXPECT_THAT(kept_copies(trace), IsEmpty());
  }
}

TEST(KeepCopiesTest, OfTwoCopiesOfAVariableOneIsKept) {
  const Trace trace = expect_kept(2, [](const Weights& w, const at::Tensor& x) -> NamedTensors {
    const at::Tensor y = x.sum() * short_of(w.a) * short_of(at::cat({w.a, w.b})).sum();
    const at::Tensor z = y.sum() * short_of(w.b) * w.bias.to(at::kHalf).sum();  // of another type
    w.update(z, {w.a, w.b, w.bias});
    return {{"y", y}};
  });
  EXPECT_THAT(operators(trace), Contains("tensorpack::sgd_and_copies_"));
}

TEST(KeepCopiesTest, IsOffUnlessItIsAskedFor) {
  const auto optimized = [](const FusionOptions& options) {
    const Weights w;
    Trace trace = trace_of(kRows, w.all(), [&](const Tensors& in) -> NamedTensors {
      const at::Tensor y = in[0].sum() * short_of(w.a).sum() * short_of(w.b);
      w.update(y, {w.a, w.b});
      return {{"y", y}};
    });
    cuda::optimize(trace, {"y"}, options);
    return operators(trace);
  };
  EXPECT_FALSE(FusionOptions().keep_copies);
  EXPECT_FALSE(FusionOptions::none().keep_copies);
  EXPECT_THAT(optimized({.device = at::kCPU}), Not(Contains("tensorpack::make_copies_")));
  EXPECT_THAT(optimized({.keep_copies = true, .device = at::kCPU}),
              Contains("tensorpack::make_copies_"));
  EXPECT_THAT(optimized({.keep_copies = true}), Not(Contains("tensorpack::make_copies_")));
}

TEST(KeepCopiesTest, KernelsOfTheUpdatesAreCompiledAhead) {
  EXPECT_TRUE(launches_kernels(sgd_and_copies_operator()));
  EXPECT_TRUE(launches_kernels(adam_and_copies_operator()));
}

// ---- in trainings

// CUDA's passes, for ops that are replayed on the CPU.
class LoweringForReplay final : public Lowering {
 public:
  explicit LoweringForReplay(FusionOptions fusion, int* copies = nullptr)
      : Lowering(fusion), copies_(copies) {}

  void optimize(const Op&, Trace& trace, const std::vector<std::string>& fetches) const override {
    cuda::optimize(trace, fetches, fusion());
    if (copies_ != nullptr) *copies_ = static_cast<int>(kept_copies(trace).size());
  }

 private:
  int* copies_;
};

// A network, its training and what changes its weights otherwise.
class Training {
 public:
  Training(bool keep_copies, std::function<Owned<Optimizer>()> make_optimizer)
      : optimizer_(make_optimizer()),
        executor_(graph_, {.precision = Precision::kBFloat16, .verify_again = {3, 5, 0}},
                  std::make_unique<LoweringForReplay>(
                      FusionOptions{.keep_copies = keep_copies, .device = at::kCPU}, &copies_)) {
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

  at::Tensor train(int i) { return run(train_, i); }
  at::Tensor train_half(int i) { return run(train_half_, i); }
  at::Tensor decay(int i) { return run(decay_, i); }
  // Another set of fetches is another program.
  at::Tensor train_without_cost(int i) {
    executor_.run(train_, {batch(i)}, {});
    return at::zeros({});
  }
  const std::vector<Variable*> weights() { return graph_.variables().trainable(); }
  int copies() const { return copies_; }

 private:
  Op define(const std::string& name, std::function<void(const at::Tensor&)> finish) {
    return graph_.define({
        .name = name,
        .inputs = {{"x", {2, 5, 8}}},
        .body = [this, finish](const Tensors& in) -> NamedTensors {
          TowerContext tower(graph_);
          const TowerFunc network = [](const at::Tensor& x) {
            const at::Tensor l = MultiHeadAttention("attention", x, {.heads = 2});
            return FullyConnected("fc", l.flatten(0, 1), {.units = 3});
          };
          const at::Tensor cost = network({in[0]})[0].to(at::kFloat).square().mean();
          finish(cost);
          return {{"cost", cost}};
        },
    });
  }
  static at::Tensor batch(int i) { return at::arange(80).reshape({2, 5, 8}).div(50).sub(i % 3); }
  at::Tensor run(const Op& op, int i) { return executor_.run(op, {batch(i)}, {"cost"})[0]; }

  int copies_ = 0;  // in the program that was made last
  Graph graph_{{.seed = 5}};
  Owned<Optimizer> optimizer_;
  ProgramExecutor executor_;
  Op train_, train_half_, decay_;
};

using Changes = std::function<at::Tensor(Training&, int step)>;

void expect_same_training(const Changes& step) {
  const std::vector<std::function<Owned<Optimizer>()>> optimizers = {
      [] { return SGD({.lr = 0.1}); },
      [] { return SGD({.lr = 0.01, .momentum = 0.9}); },
      [] { return Adam({.lr = 0.01}); },
  };
  for (size_t k = 0; k < optimizers.size(); ++k) {
    SCOPED_TRACE(k);
    Training plain(false, optimizers[k]), keeping(true, optimizers[k]);
    for (int i = 0; i < 8; ++i) {
      const at::Tensor expected = step(plain, i), found = step(keeping, i);
      ASSERT_TRUE(expected.isfinite().item<bool>());
      EXPECT_TRUE(at::equal(found, expected)) << "step " << i;
    }
    EXPECT_EQ(plain.copies(), 0);
    for (size_t i = 0; i < plain.weights().size(); ++i) {
      EXPECT_TRUE(at::equal(keeping.weights()[i]->tensor, plain.weights()[i]->tensor)) << i;
    }
  }
}

TEST(TrainingWithKeptCopiesTest, GivesTheBitsOfTrainingWithout) {
  expect_same_training([](Training& training, int i) { return training.train(i); });
  Training training(true, [] { return SGD({.lr = 0.1}); });
  training.train(0);
  EXPECT_EQ(training.copies(), static_cast<int>(training.weights().size()));
}

TEST(TrainingWithKeptCopiesTest, GoesOnFromWhatIsAssigned) {
  expect_same_training([](Training& training, int i) {
    if (i % 3 == 1) {
      const Variable& weight = *training.weights()[static_cast<size_t>(i) % 4];
      weight.assign(at::full_like(weight.tensor, 0.125 * i));
    }
    return training.train(i);
  });
}

TEST(TrainingWithKeptCopiesTest, GoesOnFromWhatIsWrittenInPlace) {
  expect_same_training([](Training& training, int i) {
    const at::NoGradGuard no_grad;
    const at::Tensor& weight = training.weights()[static_cast<size_t>(i) % 4]->tensor;
    if (i == 2) weight.detach().mul_(3);
    if (i == 4) weight.flatten().narrow(0, 1, 2).fill_(1);
    if (i == 6) weight.sub_(weight.mean());
    return training.train(i);
  });
}

TEST(TrainingWithKeptCopiesTest, GoesOnFromWhatAnotherOpWrote) {
  expect_same_training([](Training& training, int i) {
    if (i == 3 || i == 5) training.decay(i);
    return training.train(i);
  });
}

TEST(TrainingWithKeptCopiesTest, TwoOpsTrainInTurns) {
  expect_same_training([](Training& training, int i) {
    return i % 3 == 1 ? training.train_half(i) : training.train(i);
  });
}

TEST(TrainingWithKeptCopiesTest, ProgramsForOtherFetchesTrainInTurns) {
  expect_same_training([](Training& training, int i) {
    return i % 3 == 1 ? training.train_without_cost(i) : training.train(i);
  });
}

}  // namespace
}  // namespace tensorpack::cuda
