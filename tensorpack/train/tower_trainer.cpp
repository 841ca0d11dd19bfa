// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/tower_trainer.h"

#include "tensorpack/utils/device.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// Starts the source before training, where an earlier run left it, and ends its threads after it.
class InputSourceCallback final : public Callback {
 public:
  explicit InputSourceCallback(InputSource& source) : source_(&source) { set_chief_only(false); }
  void before_train() override {
    if (!position_ && global_step() > 0) {
      log::info("No position of the data was saved: it goes on at batch {}, the global_step.",
                global_step());
    }
    source_->reset_state(position_.value_or(global_step()));
  }
  void after_train() override { source_->stop(); }
  std::string save_state() const override { return std::to_string(source_->position()); }
  void load_state(const std::string& state) override {
    position_ = parse_integer(state);
    TP_CHECK(position_ && *position_ >= 0, "InputSource",
             "the position '{}' is not a non-negative integer.", state);
  }

 private:
  InputSource* source_;
  std::optional<int64_t> position_;
};

InputFeeder batches_of(std::shared_ptr<InputSource> source) {
  return [source = std::move(source)] { return source->next(); };
}

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

Op TowerTrainer::define(const std::string& name, TowerBody body) {
  TP_CHECK(static_cast<bool>(tower_func_), "define",
           "op '{}' is defined before the tower. Call setup_tower() first.", name);
  const TowerHandle tower = define_tower(graph(), {},
                                         {.op_name = name,
                                          .inputs = inputs_,
                                          .function = tower_func_,
                                          .body = std::move(body),
                                          .feeder = batches_of(input_)});
  if (towers_.empty()) towers_.add(tower);
  return tower.op();
}

TowerHandle TowerTrainer::build_prediction_tower(PredictionTowerOptions options) {
  if (!options.tower_func) {
    TP_CHECK(static_cast<bool>(tower_func_), "prediction tower",
             "'{}' is built before the trainer has a tower function. Call setup_graph() first.",
             options.name);
    options.tower_func = tower_func_;
    options.inputs = inputs_;
  }
  std::string name = options.name;
  for (int suffix = 1; towers_.contains(name); ++suffix) {
    name = options.name + std::to_string(suffix);
  }
  return towers_.add(define_tower(
      graph(),
      {.name = name, .is_training = false, .device = options.device, .shares_variables = true},
      {.inputs = options.inputs, .function = *options.tower_func}));
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
      [session = session_]() -> Session& { return session->get(); });
}

}  // namespace tensorpack
