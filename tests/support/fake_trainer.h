// SPDX-License-Identifier: Apache-2.0
// The smallest trainer that callbacks can belong to.
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <utility>

#include "tensorpack/callbacks/detail/callbacks.h"
#include "tensorpack/callbacks/run_monitors.h"
#include "tensorpack/callbacks/step_counter.h"
#include "tensorpack/predict/online_predictor.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

/// Runs the loop of a trainer over an op that adds 1 to the variable `w` and names the tensors
/// `cost` (10 w, a scalar), `scope/twice` (2 w, a scalar) and `vector` ([w, w, w]).
///
/// Its prediction towers take `x` and the integers `label`, both [-1], and name `mean_x`,
/// `incorrect_vector` (where round(x) is not the label) and `prediction` (round(x)).
class FakeTrainer final : public TrainerBase {
 public:
  explicit FakeTrainer(LoopState loop = {.steps_per_epoch = 2, .max_epoch = 1}) {
    loop_ = loop;
    loop_.epoch_num = loop.starting_epoch - 1;
    graph_ = std::make_shared<Graph>();
    train_op_ =
        graph_->define({.name = "train_op", .body = [this](const auto&) { return step(); }});
  }

  /// For trainers that override run_step().
  void forget_train_op() { train_op_ = {}; }

  Callbacks& callbacks() { return callbacks_; }

  /// Before setup(): as in a process that leaves writing to another.
  void set_chief(bool value) { is_chief_ = value; }

  std::map<std::string, std::string> callback_states() const override {
    return callbacks_.save_states();
  }

  /// Steps may report others.
  ReportedScalars reported_scalars() const override {
    return {.names = callbacks_.reports().names};
  }

  OnlinePredictor get_predictor(std::vector<std::string>, std::vector<std::string>,
                                std::optional<c10::Device>) override {
    throw InternalError("this trainer makes no predictors");
  }

  /// The whole training; a StopTraining ends it normally.
  void train(OwnedList<Callback> callbacks, OwnedList<MonitorBase> monitors = {}) {
    setup(std::move(callbacks), std::move(monitors));
    std::exception_ptr error;
    try {
      loop();
    } catch (const StopTraining&) {
    } catch (...) {
      error = std::current_exception();
    }
    const std::exception_ptr late = callbacks_.after_train();
    if (error || late) std::rethrow_exception(error ? error : late);
  }

  /// What comes before before_train().
  void setup(OwnedList<Callback> callbacks, OwnedList<MonitorBase> monitors = {}) {
    monitors_ = std::make_unique<Monitors>(std::move(monitors), loop_);
    callbacks_.all().add(MaintainStepCounter());
    callbacks_.all().append(std::move(callbacks));
    callbacks_.all().add(RunMonitors());
    callbacks_.setup_graph(*this);
    graph_->finalize();
    open_session();
    hooked_sess_ = std::make_unique<HookedSession>(sess(), callbacks_.hooks());
  }

  /// After setup(): what train() does of one epoch.
  void run_one_epoch(int64_t epoch) {
    loop_.epoch_num = epoch;
    run_epoch();
  }

  TowerHandle build_prediction_tower(PredictionTowerOptions options) override {
    if (!options.tower_func) {
      options.inputs = {{.name = "x", .shape = {-1}},
                        {.name = "label", .shape = {-1}, .dtype = at::kLong}};
      options.tower_func = [](const at::Tensor& x, const at::Tensor& label) {
        named("mean_x", x.mean());
        named("incorrect_vector", x.round().to(at::kLong).ne(label).to(at::kFloat));
        named("prediction", x.round());
      };
    }
    const auto body = [this, options](const std::vector<at::Tensor>& inputs) {
      TowerContext context(*graph_, {.name = options.name,
                                     .is_training = false,
                                     .device = options.device,
                                     .shares_variables = true});
      (*options.tower_func)(inputs);
      return context.call().named_tensors();
    };
    Op op = graph_->define(
        {.name = options.name, .inputs = options.inputs, .body = body, .device = options.device});
    return {*graph_, options.name, /*is_training=*/false, std::move(op)};
  }

 private:
  NamedTensors step() {
    CallScope call(*graph_);
    at::NoGradGuard no_grad;
    at::Tensor w = get_variable("w", {}, {.role = VariableRole::kModel});
    get_variable("scratch", {}, {.role = VariableRole::kLocal});
    w.add_(1);
    return {{"cost", w * 10}, {"scope/twice", w * 2}, {"vector", w.expand({3}).clone()}};
  }

  void loop() {
    callbacks_.before_train();
    for (loop_.epoch_num = loop_.starting_epoch; loop_.epoch_num <= loop_.max_epoch;
         ++loop_.epoch_num) {
      run_epoch();
    }
    loop_.epoch_num = loop_.max_epoch;
  }

  void run_epoch() {
    callbacks_.before_epoch();
    for (int64_t step = 0; step < loop_.steps_per_epoch; ++step) {
      loop_.local_step = step;
      hooked_sess_->run(train_op_ ? train_op_ : graph_->ops()[0]);
      callbacks_.trigger_step();
    }
    callbacks_.after_epoch();
    callbacks_.trigger_epoch();
  }

  Callbacks callbacks_;
};

}  // namespace tensorpack
