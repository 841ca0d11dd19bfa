// SPDX-License-Identifier: Apache-2.0
// Trainers for two costs that pull in opposite directions, on one tower or several.
#pragma once

#include <utility>
#include <vector>

#include "tensorpack/tensorpack.h"

namespace gan {

using namespace tensorpack;  // NOLINT: an example

/// A tower function that names `g_loss` and `d_loss`, with the variables of the two players in the
/// scopes `gen` and `discrim`.
struct Model {
  std::vector<TensorSpec> inputs = {};
  TowerFunc build_losses = {};
  Owned<Optimizer> g_optimizer = {};
  Owned<Optimizer> d_optimizer = {};
};

/// Of both optimizers: what a report says of the trainer.
inline HyperParams hyper_params_of(const Model& model) {
  HyperParams params = model.g_optimizer->hyper_params();
  params.merge(model.d_optimizer->hyper_params());
  return params;
}

/// Names the losses of the original game: sigmoid cross entropy, for the generator the form that
/// does not saturate.
inline void name_losses(const Tensor& real_logits, const Tensor& fake_logits) {
  const auto cross_entropy = [](const Tensor& logits, double label) {
    return torch::binary_cross_entropy_with_logits(logits, torch::full_like(logits, label));
  };
  const Tensor d_loss =
      named("d_loss", (cross_entropy(real_logits, 1) + cross_entropy(fake_logits, 0)) / 2);
  const Tensor g_loss = named("g_loss", cross_entropy(fake_logits, 1));
  add_moving_summary(d_loss, g_loss);
}

/// Names the losses of a Wasserstein GAN.
inline void name_wasserstein_losses(const Tensor& real_logits, const Tensor& fake_logits) {
  const Tensor d_loss = named("d_loss", fake_logits.mean() - real_logits.mean());
  const Tensor g_loss = named("g_loss", -fake_logits.mean());
  add_moving_summary(d_loss, g_loss);
}

/// Updates the generator, then the discriminator, in one run: both from one batch and one pass
/// through the networks.
class GANTrainer final : public TowerTrainer {
 public:
  GANTrainer(Model model, Owned<InputSource> input, DataParallel parallel = {})
      : TowerTrainer(std::move(parallel)) {
    setup_tower(std::move(model.inputs), std::move(input), std::move(model.build_losses));
    hyper_params_ = hyper_params_of(model);
    const std::shared_ptr<Optimizer> g_optimizer = std::move(model.g_optimizer).share();
    const std::shared_ptr<Optimizer> d_optimizer = std::move(model.d_optimizer).share();
    set_train_op(define("train_op", [g_optimizer, d_optimizer](TowerContext& tower) {
      // Both gradients first: an update changes what the other was computed from.
      const Gradients g = compute_gradients(tower.tensor("g_loss"), tower.trainable("^gen/"));
      const Gradients d = compute_gradients(tower.tensor("d_loss"), tower.trainable("^discrim/"));
      torch::NoGradGuard no_grad;
      g_optimizer->apply_gradients(g);
      d_optimizer->apply_gradients(d);
    }));
  }

  HyperParams hyper_params() const override { return hyper_params_; }
  std::vector<std::string> cost_names() const override { return {"d_loss", "g_loss"}; }

 private:
  HyperParams hyper_params_;
};

struct Periods {
  int64_t d_period = 1;
  int64_t g_period = 1;
};

/// Updates the discriminator in every d_period-th step and the generator in every g_period-th, each
/// on a batch of its own. In steps where both are due the discriminator comes first.
class SeparateGANTrainer final : public TowerTrainer {
 public:
  SeparateGANTrainer(Model model, Owned<InputSource> input, Periods periods,
                     DataParallel parallel = {})
      : TowerTrainer(std::move(parallel)), periods_(periods) {
    TP_CHECK(std::min(periods.d_period, periods.g_period) == 1, "SeparateGANTrainer",
             "the periods are {} and {}. One of them must be 1, else some steps do nothing.",
             periods.d_period, periods.g_period);
    setup_tower(std::move(model.inputs), std::move(input), std::move(model.build_losses));
    hyper_params_ = hyper_params_of(model);
    const std::shared_ptr<Optimizer> g_optimizer = std::move(model.g_optimizer).share();
    const std::shared_ptr<Optimizer> d_optimizer = std::move(model.d_optimizer).share();
    d_op_ = define("d_op", [d_optimizer](TowerContext& tower) {
      minimize(*d_optimizer, tower.tensor("d_loss"), "^discrim/");
    });
    g_op_ = define("g_op", [g_optimizer](TowerContext& tower) {
      minimize(*g_optimizer, tower.tensor("g_loss"), "^gen/");
    });
  }

  HyperParams hyper_params() const override { return hyper_params_; }
  std::vector<std::string> cost_names() const override { return {"d_loss", "g_loss"}; }

  void run_step() override {
    // Steps, not hooked runs, of which a step may make two.
    const int64_t step = (epoch_num() - 1) * steps_per_epoch() + local_step();
    if (step % periods_.d_period == 0) hooked_sess().run(d_op_);
    if (step % periods_.g_period == 0) hooked_sess().run(g_op_);
  }

 private:
  Periods periods_;
  HyperParams hyper_params_;
  Op d_op_, g_op_;
};

/// Keeps the discriminator's weights within [-limit, limit], after every run.
inline RunOp clip_discriminator(double limit) {
  const auto define = [limit](Graph& graph) {
    return graph.define({.name = "clip", .body = [&graph, limit](const auto&) {
                           torch::NoGradGuard no_grad;
                           for (Variable* variable : graph.variables().trainable("^discrim/")) {
                             variable->tensor.clamp_(-limit, limit);
                             for (Variable* replica : variable->replicas) {  // in other towers
                               replica->tensor.clamp_(-limit, limit);
                             }
                           }
                           return NamedTensors();
                         }});
  };
  return RunOp(define, {.run_as_trigger = false, .run_step = true});
}

}  // namespace gan
