// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/single_cost_trainer.h"

#include <fmt/ranges.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/train/train_config.h"
#include "tensorpack/train/unused_losses.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// What the tower function returned, checked to be one scalar.
at::Tensor cost_of(TowerContext& tower) {
  const std::vector<at::Tensor>& outputs = tower.outputs();
  TP_CHECK(outputs.size() == 1, "setup_graph",
           "the tower function returned {} tensors. Return one: the scalar cost.", outputs.size());
  const at::Tensor& cost = outputs[0];
  TP_CHECK(cost.defined() && cost.dim() == 0, "setup_graph",
           "the cost must be a scalar, got a tensor of shape [{}]. Reduce it, for example with "
           ".mean().",
           cost.defined() ? fmt::format("{}", fmt::join(cost.sizes(), ", ")) : "undefined");
  const CallScope& call = tower.call();
  const std::vector<std::string> unused = unused_regularization_losses(call, cost);
  if (!unused.empty()) {
    logging::warning_once("The cost does not contain {}: {}. Add what is missing.",
                          counted(std::ssize(unused), "regularization loss"), join(unused, ", "));
  }
  return cost;
}

// The name under which callbacks find the cost, in whichever scope the tower function named it.
std::string name_cost(const CallScope& call, const at::Tensor& cost) {
  if (!call.named_tensors().contains("cost")) named("cost", cost);
  if (call.named_tensors().at("cost").is_same(cost)) return "cost";
  const std::string name = call.name_of(cost);
  if (!name.empty()) return name;
  const VariableScope scope("minimize");  // what the user calls "cost" is a part of it
  named("cost", cost);
  return VariableScope::path_of("cost");
}

}  // namespace

void SingleCostTrainer::setup_graph(std::vector<TensorSpec> inputs, Owned<InputSource> input,
                                    TowerFunc get_cost, Owned<Optimizer> optimizer) {
  TP_CHECK(static_cast<bool>(optimizer), "setup_graph",
           "there is no optimizer. Pass one, for example Adam({{.lr = 1e-3}}).");
  setup_tower(std::move(inputs), std::move(input), std::move(get_cost));
  optimizer_ = std::move(optimizer).share();
  setup_train_op();
}

void SingleCostTrainer::take_config(TrainConfig& config) {
  config_ = std::make_shared<TrainConfig>(detail::consume(config));
}

void SingleCostTrainer::train() {
  TP_CHECK(config_ != nullptr, "train",
           "this trainer was constructed without a TrainConfig. Pass it one, or call "
           "setup_graph() and train_with_defaults(), or launch_train_with_config().");
  launch_train_with_config(*config_, *this);
}

HyperParams SingleCostTrainer::hyper_params() const {
  return optimizer_ ? optimizer_->hyper_params() : HyperParams();
}

std::vector<std::string> SingleCostTrainer::cost_names() const {
  return cost_name_ ? std::vector{*cost_name_} : TowerTrainer::cost_names();
}

Op SingleCostTrainer::define_update() {
  cost_name_ = std::make_shared<std::string>();
  return define("train_op", [optimizer = optimizer_, name = cost_name_](TowerContext& tower) {
    const at::Tensor cost = cost_of(tower);
    const std::string cost_name = name_cost(tower.call(), cost);
    if (name->empty()) *name = cost_name;
    minimize(*optimizer, cost);
  });
}

void QueueInputTrainer::setup_train_op() {
  TP_CHECK(dynamic_cast<const QueueInput*>(&input().origin()) != nullptr, "QueueInputTrainer",
           "the input is not a QueueInput. Pass QueueInput(...) as .data, or use SimpleTrainer.");
  set_train_op(define_update());
}

}  // namespace tensorpack
