// SPDX-License-Identifier: Apache-2.0
// Every optimizer against torch::optim over 50 steps, and what happens to odd costs.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "tensorpack/graph/graph.h"
#include "tensorpack/optim/adagrad.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/lamb.h"
#include "tensorpack/optim/loss_scale.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/optim/rmsprop.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/optim/wrappers.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int kSteps = 50;
constexpr int kChangeOfRate = 20;
constexpr double kLaterRate = 0.003;

at::Tensor cost_of(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& w2) {
  return at::mm(at::tanh(at::mm(x, w1)), w2).square().mean();
}

std::vector<at::Tensor> make_batches() {
  torch::manual_seed(5);
  std::vector<at::Tensor> batches;
  for (int i = 0; i < kSteps; ++i) batches.push_back(at::randn({8, 4}));
  return batches;
}

// Trains with ours as a recorded program; returns the variables at the end.
template <typename Ours>
std::vector<at::Tensor> train_ours(Ours optimizer, const std::vector<at::Tensor>& batches) {
  Graph graph;
  const Op step = graph.define({
      .name = "step",
      .inputs = {{"x", {-1, 4}}},
      .body =
          [&](const std::vector<at::Tensor>& inputs) {
            TowerContext tower(graph);
            const at::Tensor w1 = get_variable("w1", {4, 6}, init::normal(0.5));
            const at::Tensor w2 = get_variable("w2", {6, 2}, init::normal(0.5));
            minimize(optimizer, cost_of(inputs[0], w1, w2), graph.variables().trainable());
            return NamedTensors();
          },
  });
  ProgramExecutor executor(graph, {});
  for (int i = 0; i < kSteps; ++i) {
    if (i == kChangeOfRate) graph.variables().at("learning_rate").tensor.fill_(kLaterRate);
    executor.run(step, {batches[i]}, {});
  }
  EXPECT_EQ(executor.recordings(), 1U) << "a new learning rate must not record again";
  return {graph.variables().at("w1").tensor.detach(), graph.variables().at("w2").tensor.detach()};
}

// The first values of the variables of train_ours().
std::vector<at::Tensor> first_values() {
  Graph graph;
  CallScope call(graph);
  return {get_variable("w1", {4, 6}, init::normal(0.5)).detach().clone().requires_grad_(true),
          get_variable("w2", {6, 2}, init::normal(0.5)).detach().clone().requires_grad_(true)};
}

template <typename Theirs, typename Options>
std::vector<at::Tensor> train_theirs(Options options, const std::vector<at::Tensor>& batches) {
  std::vector<at::Tensor> weights = first_values();
  Theirs optimizer(weights, options);
  for (int i = 0; i < kSteps; ++i) {
    if (i == kChangeOfRate) {
      static_cast<Options&>(optimizer.param_groups()[0].options()).lr(kLaterRate);
    }
    optimizer.zero_grad();
    cost_of(batches[i], weights[0], weights[1]).backward();
    optimizer.step();
  }
  return {weights[0].detach(), weights[1].detach()};
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_LT((a[i] - b[i]).abs().max().item<double>(), 2e-6) << "weight " << i;
  }
}

TEST(SGDTest, EqualsTorch) {
  const auto batches = make_batches();
  expect_equal(
      train_ours(SGD({.lr = 0.05, .weight_decay = 0.01}), batches),
      train_theirs<torch::optim::SGD>(torch::optim::SGDOptions(0.05).weight_decay(0.01), batches));
}

TEST(SGDTest, MomentumEqualsTorch) {
  const auto batches = make_batches();
  expect_equal(train_ours(SGD({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.02}), batches),
               train_theirs<torch::optim::SGD>(
                   torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.02), batches));
  expect_equal(
      train_ours(Momentum(0.05), batches),
      train_theirs<torch::optim::SGD>(torch::optim::SGDOptions(0.05).momentum(0.9), batches));
}

TEST(SGDTest, NesterovEqualsTorch) {
  const auto batches = make_batches();
  for (const double decay : {0., 0.02}) {
    expect_equal(
        train_ours(SGD({.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = decay}),
                   batches),
        train_theirs<torch::optim::SGD>(
            torch::optim::SGDOptions(0.05).momentum(0.9).nesterov(true).weight_decay(decay),
            batches));
  }
}

TEST(AdamTest, EqualsTorch) {
  const auto batches = make_batches();
  expect_equal(train_ours(Adam({.lr = 0.01, .weight_decay = 0.02}), batches),
               train_theirs<torch::optim::Adam>(torch::optim::AdamOptions(0.01).weight_decay(0.02),
                                                batches));
}

TEST(AdamTest, AdamWEqualsTorch) {
  const auto batches = make_batches();
  expect_equal(train_ours(AdamW({.lr = 0.01, .weight_decay = 0.1}), batches),
               train_theirs<torch::optim::AdamW>(torch::optim::AdamWOptions(0.01).weight_decay(0.1),
                                                 batches));
}

TEST(RMSPropTest, EveryKindEqualsTorch) {
  const auto batches = make_batches();
  for (const bool centered : {false, true}) {
    for (const double momentum : {0., 0.9}) {
      for (const double decay : {0., 0.02}) {
        SCOPED_TRACE(testing::Message() << "centered " << centered << ", momentum " << momentum
                                        << ", weight decay " << decay);
        expect_equal(train_ours(RMSProp({.lr = 0.001,
                                         .momentum = momentum,
                                         .centered = centered,
                                         .weight_decay = decay}),
                                batches),
                     train_theirs<torch::optim::RMSprop>(torch::optim::RMSpropOptions(0.001)
                                                             .momentum(momentum)
                                                             .centered(centered)
                                                             .weight_decay(decay),
                                                         batches));
      }
    }
  }
}

TEST(AdagradTest, EqualsTorch) {
  const auto batches = make_batches();
  expect_equal(
      train_ours(
          Adagrad({.lr = 0.05, .lr_decay = 0.1, .weight_decay = 0.02, .initial_accumulator = 0.1}),
          batches),
      train_theirs<torch::optim::Adagrad>(torch::optim::AdagradOptions(0.05)
                                              .lr_decay(0.1)
                                              .weight_decay(0.02)
                                              .initial_accumulator_value(0.1),
                                          batches));
}

TEST(LAMBTest, ScalesTheStepToTheNormOfTheVariable) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor w = get_variable("w", {2}, init::from(at::tensor({3., 4.}, at::kFloat)));
  const at::Tensor zero = get_variable("zero", {2});
  LAMB lamb({.lr = 0.1, .weight_decay = 0.5});
  minimize(lamb, (w * at::tensor({1., -1.}, at::kFloat)).sum() + zero.sum(),
           graph.variables().trainable());
  // The first Adam step is the sign of the gradient: (1, -1) + 0.5 * (3, 4) = (2.5, 1).
  const double trust = 5 / std::sqrt(2.5 * 2.5 + 1);
  EXPECT_NEAR(w[0].item<double>(), 3 - 0.1 * trust * 2.5, 1e-5);
  EXPECT_NEAR(w[1].item<double>(), 4 - 0.1 * trust * 1, 1e-5);
  EXPECT_NEAR(zero[0].item<double>(), -0.1, 1e-5);
}

// The paper's formulas, for want of a torch::optim::LAMB.
TEST(LAMBTest, EqualsItsFormula) {
  const auto batches = make_batches();
  std::vector<at::Tensor> weights = first_values();
  std::vector<at::Tensor> m{at::zeros({4, 6}), at::zeros({6, 2})}, v{m[0].clone(), m[1].clone()};
  for (int i = 0; i < kSteps; ++i) {
    const double lr = i < kChangeOfRate ? 0.01 : kLaterRate;
    const auto gradients =
        torch::autograd::grad({cost_of(batches[i], weights[0], weights[1])}, weights);
    at::NoGradGuard no_grad;
    for (size_t k = 0; k < weights.size(); ++k) {
      m[k] = 0.9 * m[k] + 0.1 * gradients[k];
      v[k] = 0.999 * v[k] + 0.001 * gradients[k].square();
      const at::Tensor step = m[k] / (1 - std::pow(0.9, i + 1)) /
                                  ((v[k] / (1 - std::pow(0.999, i + 1))).sqrt() + 1e-6) +
                              0.02 * weights[k];
      weights[k].sub_(lr * step * weights[k].norm() / step.norm());
    }
  }
  expect_equal(train_ours(LAMB({.lr = 0.01, .weight_decay = 0.02}), batches),
               {weights[0].detach(), weights[1].detach()});
}

TEST(LAMBTest, SecondStepIsThatOfTheFormula) {
  Graph graph;
  const at::Tensor w = [&] {
    TowerContext tower(graph);
    return get_variable("w", {}, init::constant(2));
  }();
  LAMB lamb({.lr = 0.1, .epsilon = 0, .weight_decay = 0});
  for (double factor : {1., 3.}) {
    TowerContext tower(graph);
    minimize(lamb, get_variable("w", {}) * factor, graph.variables().trainable());
  }
  // A scalar's trust ratio makes every step lr * |w|.
  EXPECT_NEAR(w.item<double>(), 2 * 0.9 * 0.9, 1e-6);
}

TEST(OptimizerTest, SlotsAreSavedVariablesNamedAfterTheirs) {
  Graph graph;
  TowerContext tower(graph);
  get_variable("layer/W", {3}, init::ones());
  Adam adam;
  minimize(adam, graph.variables().at("layer/W").tensor.sum(), graph.variables().trainable());
  for (const char* name : {"layer/W/Adam_m", "layer/W/Adam_v", "Adam/step", "learning_rate"}) {
    EXPECT_EQ(graph.variables().at(name).role, VariableRole::kGlobal) << name;
  }
}

TEST(OptimizerTest, OtherTypesAndMemoryFormatsGetTheSameUpdate) {
  torch::manual_seed(1);
  const at::Tensor start = at::randn({4, 3, 5, 5});
  const at::Tensor gradient = at::randn({4, 3, 5, 5});
  auto updated = [&](bool channels_last, c10::ScalarType dtype, const at::Tensor& value,
                     auto optimizer) {
    Graph graph({.channels_last = channels_last});
    TowerContext tower(graph);
    get_variable("w", start.sizes(), {.init = init::from(start), .dtype = dtype});
    at::NoGradGuard no_grad;
    for (int i = 0; i < 3; ++i) {
      optimizer.apply_gradients({{&graph.variables().at("w"), value.to(dtype)}});
    }
    return graph.variables().at("w").tensor.detach().to(at::kFloat);
  };
  auto is_close = [](const at::Tensor& a, const at::Tensor& b) {
    return at::allclose(a, b, 1e-5, 1e-6);
  };
  const auto strided = gradient.contiguous(at::MemoryFormat::ChannelsLast);
  for (const auto& optimizer : {SGDOptions{.lr = 0.1, .weight_decay = 0.1},
                                SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 0.1}}) {
    const at::Tensor expected = updated(false, at::kDouble, gradient, SGD(optimizer));
    EXPECT_TRUE(is_close(updated(false, at::kFloat, gradient, SGD(optimizer)), expected));
    EXPECT_TRUE(is_close(updated(false, at::kFloat, strided, SGD(optimizer)), expected));
    EXPECT_TRUE(is_close(updated(true, at::kFloat, gradient, SGD(optimizer)), expected));
  }
  const at::Tensor expected = updated(false, at::kDouble, gradient, Adam({.weight_decay = 0.1}));
  EXPECT_TRUE(is_close(updated(true, at::kFloat, gradient, Adam({.weight_decay = 0.1})), expected));
  for (const RMSPropOptions& options :
       {RMSPropOptions{.weight_decay = 0.1},
        RMSPropOptions{.momentum = 0.9, .centered = true, .weight_decay = 0.1}}) {
    const at::Tensor exact = updated(false, at::kDouble, gradient, RMSProp(options));
    EXPECT_TRUE(is_close(updated(true, at::kFloat, gradient, RMSProp(options)), exact));
    EXPECT_TRUE(is_close(updated(false, at::kFloat, strided, RMSProp(options)), exact));
  }
  const at::Tensor lamb = updated(false, at::kDouble, gradient, LAMB());
  EXPECT_TRUE(is_close(updated(true, at::kFloat, gradient, LAMB()), lamb));
  EXPECT_TRUE(is_close(updated(false, at::kFloat, strided, LAMB()), lamb));
  const AdagradOptions adagrad{.lr_decay = 0.1, .weight_decay = 0.1};
  const at::Tensor exact = updated(false, at::kDouble, gradient, Adagrad(adagrad));
  EXPECT_TRUE(is_close(updated(true, at::kFloat, gradient, Adagrad(adagrad)), exact));
  EXPECT_TRUE(is_close(updated(false, at::kFloat, strided, Adagrad(adagrad)), exact));
  const at::Tensor decoupled = updated(false, at::kDouble, gradient, AdamW());
  EXPECT_TRUE(is_close(updated(false, at::kFloat, strided, AdamW()), decoupled));
}

TEST(OptimizerTest, AnUpdateInvalidatesEarlierForwardPasses) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor w = get_variable("w", {3}, init::ones());
  const at::Tensor square = w.square().sum();
  const Gradients gradients = compute_gradients(square, graph.variables().trainable());
  {
    at::NoGradGuard no_grad;
    SGD().apply_gradients(gradients);
  }
  EXPECT_THAT([&] { compute_gradients(square, graph.variables().trainable()); },
              testing::ThrowsMessage<c10::Error>(HasSubstr("modified by an inplace operation")));
}

TEST(OptimizerTest, TwoAdamsOfOneGraphCountApart) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor w = get_variable("w", {3}, init::ones());
  Adam first, second({.scope = "second"});
  const Gradients gradients = compute_gradients(w.sum(), graph.variables().trainable());
  at::NoGradGuard no_grad;
  first.apply_gradients(gradients);
  second.apply_gradients(gradients);
  EXPECT_EQ(graph.variables().at("Adam/step").tensor.item<double>(), 1);
  EXPECT_EQ(graph.variables().at("second/Adam/step").tensor.item<double>(), 1);
}

TEST(MinimizeTest, OddCostsAreErrors) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor w = get_variable("w", {3}, init::ones());
  SGD sgd;
  const auto variables = graph.variables().trainable();
  EXPECT_THAT([&] { minimize(sgd, w * 2, variables); },
              ThrowsMessage<Error>(HasSubstr("must be a scalar, got a tensor of shape [3]")));
  EXPECT_THAT([&] { minimize(sgd, w.detach().sum(), variables); },
              ThrowsMessage<Error>(HasSubstr("depends on no trainable variable")));
  EXPECT_THAT([&] { minimize(sgd, w.sum(), std::vector<Variable*>()); },
              ThrowsMessage<Error>(HasSubstr("there is no trainable variable")));
}

TEST(MinimizeTest, OneForwardPassServesSeveralCosts) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor a = get_variable("a", {}, init::constant(2));
  const at::Tensor b = get_variable("b", {}, init::constant(3));
  const at::Tensor product = a * b;
  const Gradients first = compute_gradients(product.square(), graph.variables().trainable("a"));
  const Gradients second = compute_gradients(product * 2, graph.variables().trainable("b"));
  EXPECT_EQ(first[0].value.item<float>(), 36.F);
  EXPECT_EQ(second[0].value.item<float>(), 4.F);
}

TEST(MinimizeTest, GivesTheForwardPassBack) {
  Graph graph;
  TowerContext tower(graph);
  at::Tensor hidden = get_variable("w", {3}, init::ones()).exp();
  const at::Tensor cost = hidden.sum();
  const auto memory = hidden.storage().getWeakStorageImpl();
  hidden.reset();  // only the history of the cost holds it now
  compute_gradients(cost, graph.variables().trainable());
  EXPECT_FALSE(memory.expired());
  SGD sgd;
  minimize(sgd, cost, graph.variables().trainable());
  EXPECT_TRUE(memory.expired());
}

TEST(MinimizeTest, VariablesWithoutGradientStay) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor used = get_variable("used", {}, init::ones());
  const at::Tensor unused = get_variable("unused", {}, init::ones());
  SGD sgd({.lr = 0.5});
  minimize(sgd, used * 1, graph.variables().trainable());
  EXPECT_EQ(used.item<float>(), 0.5F);
  EXPECT_EQ(unused.item<float>(), 1.F);
}

TEST(OptimizerTest, TellTheirOptions) {
  EXPECT_EQ(SGD({.lr = 0.1, .momentum = 0.9, .scope = "gen"}).hyper_params(),
            (HyperParams{{"gen/optimizer", "SGD"},
                         {"gen/lr", "0.1"},
                         {"gen/momentum", "0.9"},
                         {"gen/nesterov", "false"},
                         {"gen/weight_decay", "0"}}));
  EXPECT_EQ(Adam().hyper_params().at("optimizer"), "Adam");
  EXPECT_EQ(AdamW().hyper_params().at("optimizer"), "AdamW");
  EXPECT_EQ(LAMB().hyper_params().at("epsilon"), "1e-06");
  EXPECT_EQ(RMSProp().hyper_params().at("centered"), "false");
  EXPECT_EQ(Adagrad().hyper_params().at("initial_accumulator"), "0");
  const HyperParams wrapped =
      LossScaleOptimizer(AccumGradOptimizer(MovingAverageOptimizer(Adam({.lr = 0.5})), 4))
          .hyper_params();
  EXPECT_EQ(wrapped.at("lr"), "0.5");
  EXPECT_EQ(wrapped.at("accumulated_steps"), "4");
  EXPECT_EQ(wrapped.at("moving_average_decay"), "0.999");
  EXPECT_EQ(wrapped.at("loss_scale"), "65536");
}

TEST(OptimizerTest, ImpossibleOptionsAreErrors) {
  EXPECT_THAT([] { SGD({.lr = -1}); }, ThrowsMessage<Error>(HasSubstr("must not be negative")));
  EXPECT_THAT([] { SGD({.nesterov = true}); }, ThrowsMessage<Error>(HasSubstr("momentum above 0")));
  EXPECT_THAT([] { Adam({.beta1 = 1}); }, ThrowsMessage<Error>(HasSubstr("[0, 1)")));
  EXPECT_THAT([] { RMSProp({.alpha = 2}); }, ThrowsMessage<Error>(HasSubstr("alpha 2")));
  EXPECT_THAT([] { Adagrad({.lr_decay = -1}); }, ThrowsMessage<Error>(HasSubstr("lr_decay -1")));
  EXPECT_THAT([] { LAMB({.beta2 = 1}); }, ThrowsMessage<Error>(HasSubstr("beta2 1")));
}

}  // namespace
}  // namespace tensorpack::test
