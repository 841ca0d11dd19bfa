// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/tower_trainer.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// Starts the source before training and ends its threads after it.
class InputSourceCallback final : public Callback {
 public:
  explicit InputSourceCallback(InputSource& source) : source_(&source) { set_chief_only(false); }
  void before_train() override { source_->reset_state(global_step()); }
  void after_train() override { source_->stop(); }

 private:
  InputSource* source_;
};

}  // namespace

void TowerTrainer::setup_tower(std::vector<TensorSpec> inputs, Owned<InputSource> input,
                               TowerFunc tower) {
  TP_CHECK(!tower_func_, "setup_tower",
           "the trainer has a tower function already. Make another "
           "trainer for another model.");
  TP_CHECK(static_cast<bool>(input), "setup_tower", "there is no input source. Pass one.");
  check_signature(inputs);
  tower.check_arity(inputs);
  tower_func_ = std::move(tower);
  inputs_ = std::move(inputs);
  input_ = std::move(input);
  register_callback(InputSourceCallback(*input_));
}

std::vector<at::Tensor> TowerTrainer::next_batch() {
  std::optional<DataPoint> batch = input_->next();
  return batch ? std::move(*batch) : std::vector<at::Tensor>();
}

Op TowerTrainer::define(const std::string& name, std::function<void()> body) {
  TP_CHECK(static_cast<bool>(tower_func_), "define",
           "op '{}' is defined before the tower. Call setup_tower() first.", name);
  Op op = graph().define({
      .name = name,
      .inputs = inputs_,
      .body =
          [this, body = std::move(body)](const std::vector<at::Tensor>& inputs) {
            TowerContext tower(graph());
            outputs_ = tower_func_(inputs);
            body();
            outputs_.clear();
            return tower.call().named_tensors();
          },
      .feeder = [this] { return next_batch(); },
  });
  if (towers_.empty()) towers_.add(TowerHandle(graph(), "", /*is_training=*/true, op));
  return op;
}

at::Tensor TowerTrainer::tensor(const std::string& name) const {
  return CallScope::current_or_throw("tensor").tensor(name);
}

std::vector<Variable*> TowerTrainer::trainable(const std::string& regex) {
  std::vector<Variable*> found = variables().trainable(regex);
  if (!found.empty()) return found;
  std::vector<std::string> known;
  for (const Variable* variable : variables().trainable()) known.push_back(variable->name);
  TP_CHECK(!known.empty(), "trainable",
           "the model has no trainable variable. Create some in the tower function, with a layer "
           "or get_variable().");
  throw make_error("trainable", "no trainable variable matches '{}'. {}", regex,
                   did_you_mean(regex, known));
}

TowerHandle TowerTrainer::build_prediction_tower(PredictionTowerOptions options) {
  if (!options.tower_func) {
    TP_CHECK(static_cast<bool>(tower_func_), "prediction tower",
             "'{}' is built before the trainer has a tower function. Call setup_graph() first.",
             options.name);
    options.tower_func = tower_func_;
    options.inputs = inputs_;
  }
  options.tower_func->check_arity(options.inputs);
  std::string name = options.name;
  for (int suffix = 1; towers_.contains(name); ++suffix) {
    name = options.name + std::to_string(suffix);
  }
  Op op = graph().define({
      .name = name,
      .inputs = options.inputs,
      .body =
          [this, name, device = options.device,
           tower_func = *options.tower_func](const std::vector<at::Tensor>& inputs) {
            at::NoGradGuard no_grad;
            TowerContext tower(
                graph(),
                {.name = name, .is_training = false, .device = device, .shares_variables = true});
            tower_func(inputs);
            return tower.call().named_tensors();
          },
      .device = options.device,
  });
  return towers_.add(TowerHandle(graph(), name, /*is_training=*/false, op));
}

OnlinePredictor TowerTrainer::get_predictor(std::vector<std::string> input_names,
                                            std::vector<std::string> output_names,
                                            std::optional<c10::Device> device) {
  const c10::Device place = check_device(device.value_or(graph().options().device));
  const std::string name =
      place == graph().options().device ? "tower-pred" : "tower-pred-" + place.str();
  const TowerHandle tower = towers_.contains(name)
                                ? towers_[name]
                                : build_prediction_tower({.name = name, .device = place});
  return OnlinePredictor(
      graph(), tower,
      {.input_names = std::move(input_names), .output_names = std::move(output_names)},
      [this]() -> Session& { return sess(); });
}

}  // namespace tensorpack
