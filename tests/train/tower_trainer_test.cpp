// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/tower_trainer.h"

#include <gmock/gmock.h>
#include <torch/cuda.h>

#include <optional>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/process_tensors.h"
#include "tensorpack/callbacks/stop_at_nan.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/tower/collection.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/event_recorder.h"
#include "tests/support/throws.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

template <typename T>
void setup(T& trainer) {
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
}

// What a callback that predicts looks like.
class PredictAtEachEpoch final : public Callback {
 public:
  explicit PredictAtEachEpoch(std::vector<double>& seen, std::optional<c10::Device> device = {})
      : seen_(seen), device_(device) {}
  void setup_graph() override {
    predict_ = trainer().get_predictor({"x"}, {"prediction"}, device_);
  }
  void before_train() override { trigger(); }
  void trigger() override { seen_.push_back((*predict_)(at::zeros({1}))[0].item<double>()); }

 private:
  std::vector<double>& seen_;
  std::optional<c10::Device> device_;
  std::optional<OnlinePredictor> predict_;
};

TEST(TowerTrainerTest, PredictorSeesTheVariablesOfTheMoment) {
  SimpleTrainer trainer;
  setup(trainer);
  std::vector<double> seen;
  trainer.train({
      .callbacks = {PredictAtEachEpoch(seen)},
      .steps_per_epoch = 4,
      .max_epoch = 20,
  });
  ASSERT_EQ(seen.size(), 21);
  EXPECT_EQ(seen.front(), 0) << "before training b is 0";
  EXPECT_NEAR(seen.back(), 1, 0.01) << "after it b is 1";
  EXPECT_EQ(trainer.global_step(), 80) << "predictions are no steps";
}

TEST(TowerTrainerTest, ATrainerWithoutATowerFunctionHasNoPredictors) {
  class Plain final : public Trainer {
   public:
    void run_step() override {}
  } trainer;
  TrainerBase& base = trainer;
  EXPECT_ERROR(base.get_predictor({}, {"logits"}),
               "[get_predictor] there is no predictor of 'logits': this trainer has no tower");
}

TEST(TowerTrainerTest, AModelMayReadTheNumberOfStepsMade) {
  SimpleTrainer trainer;
  const auto cost = [](const at::Tensor& x, const at::Tensor& y) {
    named("share", get_global_step().to(at::kFloat) / 4);
    return linear_cost(x, y);
  };
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), cost, SGD({.lr = 0.1}));
  std::vector<double> seen;
  const auto see = [&](const std::vector<at::Tensor>& values) {
    seen.push_back(values[0].item<double>());
  };
  trainer.train(
      {.callbacks = {ProcessTensors({"share"}, see)}, .steps_per_epoch = 5, .max_epoch = 1});
  EXPECT_THAT(seen, testing::ElementsAre(0, 0.25, 0.5, 0.75, 1));
  EXPECT_ERROR(get_global_step(), "get_global_step");
}

// In place of a ModelSaver with a collection.
TEST(TowerTrainerTest, ACallbackSavesTheVariablesOfACollection) {
  const TempDir dir;
  const auto cost = [](const at::Tensor& x, const at::Tensor& y) {
    add_to_collection("backbone", get_variable("w", {}));
    return named("cost", (get_variable("b", {}) * x - y).square().mean());
  };
  const auto save = [file = dir / "backbone.safetensors"](Callback& callback) {
    NamedTensors chosen;
    for (const std::string& name : collected_names(callback.graph(), "backbone")) {
      chosen.emplace(name, callback.graph().variables().at(name).tensor.detach());
    }
    write_weights(file, chosen);
  };
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), cost, SGD({.lr = 0.1}));
  stdout_of([&] {
    trainer.train(
        {.callbacks = {CallbackFactory({.trigger = save})}, .steps_per_epoch = 1, .max_epoch = 1});
  });
  EXPECT_THAT(read_weights(dir / "backbone.safetensors"),
              testing::ElementsAre(testing::Pair("w", testing::_)));
}

TEST(TowerTrainerTest, PredictorsShareOneTower) {
  SimpleTrainer trainer;
  setup(trainer);
  const auto a = trainer.get_predictor({"x"}, {"prediction"});
  const auto b = trainer.get_predictor({}, {"cost", "w"});
  EXPECT_EQ(trainer.towers().inference().size(), 1);
  EXPECT_EQ(trainer.towers().training().size(), 1);
  EXPECT_EQ(a.tower().op(), b.tower().op());
}

TEST(TowerTrainerTest, PredictorsOnAnotherDeviceHaveATowerOfTheirOwn) {
  SimpleTrainer trainer;
  setup(trainer);
  const auto here = trainer.get_predictor({"x"}, {"prediction"});
  const auto cpu = trainer.get_predictor({"x"}, {"prediction"}, at::kCPU);
  const auto meta = trainer.get_predictor({"x"}, {"prediction"}, at::kMeta);
  const auto meta_again = trainer.get_predictor({}, {"cost"}, at::kMeta);
  EXPECT_EQ(cpu.tower().op(), here.tower().op());
  EXPECT_EQ(meta.tower().op(), meta_again.tower().op());
  EXPECT_EQ(meta.tower().name(), "tower-pred-meta");
  EXPECT_EQ(meta.tower().op().device(), c10::Device(at::kMeta));
  EXPECT_EQ(trainer.towers().inference().size(), 2);
}

TEST(TowerTrainerTest, PredictorOnAnotherDeviceRecordsTheCopyOfEveryVariable) {
  SimpleTrainer trainer;
  setup(trainer);
  const auto predict = trainer.get_predictor({"x"}, {"prediction"}, at::kMeta);
  const Trace trace = Session(trainer.graph()).trace(predict.tower().op());
  std::vector<std::string> copied;
  for (const Node& node : trace.nodes) {
    if (node.op_name() != "aten::_to_copy") continue;
    node.for_each_argument([&](ValueId id) { copied.push_back(trace.values[id].name); });
  }
  EXPECT_THAT(copied, testing::UnorderedElementsAre("w", "b"));
}

// The meta device has shapes and no values, which is enough to see where things are computed.
TEST(TowerTrainerTest, PredictorBringsInputsAndVariablesToItsDevice) {
  SimpleTrainer trainer;
  setup(trainer);
  const auto predict = trainer.get_predictor({"x"}, {"prediction"}, at::kMeta);
  at::Tensor prediction;
  trainer.train({
      .callbacks = {ActAt("before_train", 0, [&] { prediction = predict(at::zeros({3}))[0]; })},
      .session = {.executor = ExecutorKind::kEager},
      .steps_per_epoch = 1,
      .max_epoch = 1,
  });
  EXPECT_TRUE(prediction.is_meta());
  EXPECT_EQ(prediction.sizes(), at::IntArrayRef({3}));
  EXPECT_TRUE(trainer.variables().at("w").tensor.is_cpu());
}

TEST(TowerTrainerTest, PredictorOnTheGpuFollowsATrainingOnTheCpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "needs a GPU";
  SimpleTrainer trainer;
  setup(trainer);
  std::vector<double> here, there;
  trainer.train({
      .callbacks = {PredictAtEachEpoch(here), PredictAtEachEpoch(there, at::kCUDA)},
      .steps_per_epoch = 4,
      .max_epoch = 20,
  });
  EXPECT_NEAR(there.back(), 1, 0.01);
  EXPECT_THAT(there, testing::Pointwise(testing::DoubleNear(1e-6), here));
  EXPECT_TRUE(trainer.towers().inference()[1].op().device().is_cuda());
}

TEST(TowerTrainerTest, PredictorOnADeviceThatDoesNotExistIsAnError) {
  SimpleTrainer trainer;
  setup(trainer);
  EXPECT_THAT([&] { trainer.get_predictor({"x"}, {"prediction"}, c10::Device("cuda:99")); },
              ThrowsMessage<Error>(HasSubstr("'cuda:99' cannot be used")));
}

TEST(TowerTrainerTest, PredictorNeedsTheSession) {
  SimpleTrainer trainer;
  setup(trainer);
  const auto predict = trainer.get_predictor({"x"}, {"prediction"});
  EXPECT_THAT([&] { predict(at::zeros({1})); },
              ThrowsMessage<Error>(HasSubstr("the session exists from initialize() on")));
}

TEST(TowerTrainerTest, PredictorOfAnUnknownTensorIsAnError) {
  SimpleTrainer trainer;
  setup(trainer);
  EXPECT_THAT([&] { trainer.get_predictor({"x"}, {"predictions"}); },
              ThrowsMessage<Error>(HasSubstr("Did you mean 'prediction'?")));
}

TEST(TowerTrainerTest, FirstPredictorInTheLoopComesTooLate) {
  SimpleTrainer trainer;
  setup(trainer);
  EXPECT_THAT(
      [&] {
        trainer.train({
            .callbacks = {ActAt("before_train", 0,
                                [&] { trainer.get_predictor({"x"}, {"prediction"}); })},
            .steps_per_epoch = 1,
            .max_epoch = 1,
        });
      },
      ThrowsMessage<Error>(HasSubstr("Define it before training starts")));
}

TEST(TowerTrainerTest, TowerIsSetUpOnceAndFirst) {
  SimpleTrainer trainer;
  EXPECT_THAT([&] { trainer.get_predictor({}, {"cost"}); },
              ThrowsMessage<Error>(HasSubstr("Call setup_graph() first.")));
  setup(trainer);
  EXPECT_THAT([&] { setup(trainer); },
              ThrowsMessage<Error>(HasSubstr("the trainer has a tower function already")));
  EXPECT_EQ(trainer.input_signature().size(), 2);
  EXPECT_EQ(trainer.tower_func().arity(), 2);
}

// A trainer of one's own, open for wrong use.
class OpenTowerTrainer final : public TowerTrainer {
 public:
  using TowerTrainer::define;
  using TowerTrainer::setup_tower;
};

TEST(TowerTrainerTest, OpsOfOnesOwnAreDefinedAfterTheTower) {
  OpenTowerTrainer trainer;
  EXPECT_THAT([&] { trainer.define("d_op", [](TowerContext&) {}); },
              ThrowsMessage<Error>(HasSubstr("op 'd_op' is defined before the tower.")));
}

TEST(TowerTrainerTest, UnknownTensorsAndVariablesAreToldWithTheNearestName) {
  OpenTowerTrainer trainer;
  trainer.setup_tower(linear_inputs(), FeedInput(linear_data()), linear_cost);
  EXPECT_THAT([&] { trainer.define("a", [](TowerContext& tower) { tower.tensor("coast"); }); },
              ThrowsMessage<Error>(HasSubstr("Did you mean 'cost'?")));
  EXPECT_THAT([&] { trainer.define("b", [](TowerContext& tower) { tower.trainable("^gen/"); }); },
              ThrowsMessage<Error>(HasSubstr("no trainable variable matches '^gen/'.")));
}

TEST(TowerTrainerTest, EachOpTakesABatchOfItsOwn) {
  OpenTowerTrainer trainer;
  trainer.setup_tower(linear_inputs(), FeedInput(linear_data()), linear_cost);
  const Op a = trainer.define("a", {});
  const Op b = trainer.define("b", {});
  trainer.setup_callbacks({}, {});
  trainer.initialize({}, {});
  const at::Tensor first = trainer.sess().run(a, {"x"})[0];
  const at::Tensor second = trainer.sess().run(b, {"x"})[0];
  EXPECT_EQ(first[0].item<double>(), -1);
  EXPECT_EQ(second[0].item<double>(), -0.5);
}

class TwoOpsTrainer final : public TowerTrainer {
 public:
  TwoOpsTrainer() {
    setup_tower(linear_inputs(), FeedInput(linear_data()), linear_cost);
    define("a", {});
    define("b", {});
  }
  void run_step() override {}
};

TEST(TowerTrainerTest, AScalarOfSeveralOpsIsNamedOnceAmongTheKnown) {
  const std::string log = stdout_of([] {
    TwoOpsTrainer().train(
        {.callbacks = {StopAtNaN({.tensor = "loss"})}, .steps_per_epoch = 0, .max_epoch = 1});
  });
  EXPECT_THAT(log, HasSubstr("'loss'. Did you mean 'cost'? Known: cost. Pass its name"));
}

TEST(NoOpTrainerTest, RunsHooksAndCountersButNoUpdate) {
  NoOpTrainer trainer;
  setup(trainer);
  const EventLog log = make_event_log();
  trainer.train({.callbacks = {EventRecorder(log)}, .steps_per_epoch = 1, .max_epoch = 1});
  EXPECT_THAT(*log, ElementsAre("setup_graph 0/-1/0", "before_train 0/-1/0",  //
                                "before_epoch 1/-1/0",                        //
                                "before_run 1/0/0", "after_run 1/0/1",        //
                                "trigger_step 1/0/1", "after_epoch 1/0/1",    //
                                "trigger_epoch 1/0/1", "trigger 1/0/1", "after_train 1/0/1"));
  EXPECT_EQ(trainer.variables().at("w").tensor.item<double>(), 0);
}

TEST(QueueInputTrainerTest, InsistsOnAQueue) {
  QueueInputTrainer fed;
  EXPECT_THAT(
      [&] { setup(fed); },
      ThrowsMessage<Error>(HasSubstr("[QueueInputTrainer] the input is not a QueueInput.")));
  QueueInputTrainer queued;
  queued.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  queued.train({.steps_per_epoch = 4, .max_epoch = 50});
  EXPECT_NEAR(queued.variables().at("w").tensor.item<double>(), 2, 1e-3);
}

// Registers two losses and forgets one.
at::Tensor forgetful_cost(const at::Tensor& x, const at::Tensor& y) {
  CallScope& call = *CallScope::current();
  const at::Tensor cost = linear_cost(x, y);
  const at::Tensor used = call.graph().variables().at("w").tensor.square();
  const at::Tensor forgotten = call.graph().variables().at("b").tensor.square();
  call.add_to_collection(Collection::kRegularizationLosses, "w/l2", used);
  call.add_to_collection(Collection::kRegularizationLosses, "b/l2", forgotten);
  return cost + used;
}

TEST(SingleCostTrainerTest, ForgottenRegularizationIsToldOnce) {
  SimpleTrainer trainer;
  const std::string text = stdout_of([&] {
    trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), forgetful_cost,
                        SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
  });
  const std::string warning = "The cost does not contain 1 regularization loss: b/l2.";
  ASSERT_THAT(text, HasSubstr(warning));
  EXPECT_EQ(text.find(warning), text.rfind(warning));
}

}  // namespace
}  // namespace tensorpack
