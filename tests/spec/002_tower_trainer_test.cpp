// SPDX-License-Identifier: Apache-2.0
// The document "Understand Trainer" with the tower function, sentence by sentence. What it shares
// with the first one is in 000_understand_trainer_test.cpp. tower_rules_test.cpp breaks every rule
// of the tutorial.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "tests/spec/support.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;
using testing::UnorderedElementsAre;

std::vector<std::string> names_of(Trainer& trainer) { return trainer.variables().names(); }

// "1. Some `tf.TensorSpec`, the signature of the input. 2. An `InputSource` [...] 3. A function
// which takes input tensors and returns the cost. 4. A function which returns an optimizer."
TEST(TowerTrainerSpec, SetupGraphTakesTensorSpecs) {
  static_assert(std::same_as<TensorSpec, InputDesc>);
  const std::vector<TensorSpec> inputs = {{.name = "x", .shape = {-1}, .dtype = torch::kFloat32},
                                          {.name = "y", .shape = {-1}, .dtype = torch::kFloat32}};
  SimpleTrainer trainer;
  trainer.setup_graph(inputs, QueueInput(linear_data()), linear_cost,
                      [] { return SGD({.lr = 0.1}); });
  trainer.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(trainer);
}

// "TowerTrainer is a trainer that uses user-provided "tower function" to build models. All existing
// trainers in tensorpack are subclass of ``TowerTrainer``"
template <typename... Trainers>
constexpr bool are_tower_trainers() {
  return (std::derived_from<Trainers, TowerTrainer> && ...);
}
TEST(TowerTrainerSpec, AllTrainersAreTowerTrainers) {
  static_assert(
      are_tower_trainers<SimpleTrainer, QueueInputTrainer, NoOpTrainer,
                         SyncMultiGPUTrainerReplicated, SyncMultiGPUTrainerParameterServer,
                         SyncMultiGPUTrainer, AsyncMultiGPUTrainer, DistributedTrainer>());
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD());
  EXPECT_EQ(trainer.tower_func().arity(), 2);
}

// Two replicas of a model, built and not trained.
void build_two(SyncMultiGPUTrainerReplicated& trainer, TowerFunc tower) {
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), std::move(tower),
                      SGD({.lr = 0.1}));
}

// "a tower function is a callable that takes input tensors and adds one replicate of the model to
// the graph. In short, tower function builds your model."
// "1. Data-parallel multi-GPU training, where a replicate is built on each GPU."
TEST(TowerTrainerSpec, ATowerFunctionBuildsAReplicaOnEachDevice) {
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(3));
  build_two(trainer, linear_cost);
  EXPECT_THAT(names_of(trainer), IsSupersetOf({"w", "tower1/w", "tower2/w"}));
  EXPECT_EQ(trainer.towers().training().size(), 3);
}

// "2. Graph construction for inference, where a replicate is built under inference mode."
TEST(TowerTrainerSpec, AReplicaIsBuiltUnderInferenceMode) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [](const Tensor& x, const Tensor& y) {
        named("mode", torch::full({}, is_training() ? 1 : 0));
        return linear_cost(x, y);
      },
      SGD());
  const auto mode = trainer.get_predictor({"x"}, {"mode"});
  trainer.train({.steps_per_epoch = 0, .max_epoch = 1});
  EXPECT_EQ(mode(torch::ones({1}))[0].item<int64_t>(), 0);
  const Feeds feeds = {{"x", torch::ones({1})}, {"y", torch::ones({1})}};
  EXPECT_EQ(trainer.sess().run(trainer.train_op(), {"mode"}, feeds)[0].item<int64_t>(), 1);
  EXPECT_FALSE(trainer.towers().inference()[0].is_training());
}

// "A user needs to provide a tower function to use `TowerTrainer`."
TEST(TowerTrainerSpec, ATowerTrainerNeedsATowerFunction) {
  class Without final : public TowerTrainer {
   public:
    Without() { define("op", {}); }
  };
  EXPECT_ERROR(Without(), "op 'op' is defined before the tower. Call setup_tower() first.");
}

// "If you can write a function that builds your model, then you can use `TowerTrainer`."
// "You can customize the trainer by either using or inheriting the `Trainer`/`TowerTrainer` class."
TEST(TowerTrainerSpec, ATowerTrainerIsUsedWithAFunctionThatBuildsTheModel) {
  TowerTrainer trainer;
  trainer.setup_tower(linear_inputs(), QueueInput(linear_data()), linear_cost);
  trainer.set_train_op(trainer.define("train_op", [sgd = SGD({.lr = 0.1})](auto& tower) mutable {
    minimize(sgd, tower.tensor("cost"));
  }));
  const auto predict = trainer.get_predictor({"x"}, {"prediction"});
  trainer.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(trainer);
  EXPECT_NEAR(predict(torch::ones({1}))[0].item<double>(), 3, 2e-2);
}

// "In particular, when working with the commonly used `ModelDesc` interface, the `build_graph`
// method will be part of the tower function."
TEST(TowerTrainerSpec, BuildGraphOfAModelIsPartOfTheTowerFunction) {
  class Tells final : public LineModel {
   public:
    void build_graph(const std::vector<Tensor>& inputs) override {
      named("tower_index", torch::full({}, get_current_tower_context().index()));
      LineModel::build_graph(inputs);
    }
  };
  AnyModel model = Tells();
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  trainer.setup_graph(model.inputs, FeedInput(linear_data()), model.build_graph,
                      std::move(model.optimizer));
  Session session(trainer.graph());
  for (const int index : {0, 1}) {
    const Op& tower = trainer.train_op().state().members[index];
    EXPECT_EQ(session.run(tower, {"tower_index"})[0].item<int64_t>(), index);
  }
}

// --- Rules of Tower Function ---

// "1. It may get called multiple times for data-parallel training or inference."
TEST(TowerTrainerSpec, ItIsCalledForEveryTowerAndForInference) {
  std::vector<std::string> towers;
  const auto tower = [&](const Tensor& x, const Tensor& y) {
    const TowerContext& context = get_current_tower_context();
    const std::string name = context.name() + (context.is_training() ? "" : " predicts");
    if (std::find(towers.begin(), towers.end(), name) == towers.end()) towers.push_back(name);
    return linear_cost(x, y);
  };
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  build_two(trainer, tower);
  trainer.get_predictor({"x"}, {"prediction"});
  EXPECT_THAT(towers, ElementsAre("tower0", "tower1", "tower-pred predicts"));
}

// "As a result: You'll need to be careful when modifying global states, e.g. adding ops to
// collections": here a collection is the call's, and begins empty in each.
TEST(TowerTrainerSpec, WhatIsAddedToACollectionIsThereOnce) {
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  build_two(trainer, [](const Tensor& x, const Tensor& y) {
    add_to_collection("outputs", named("doubled", x * 2));
    EXPECT_EQ(get_collection("outputs").size(), 1);
    return linear_cost(x, y);
  });
  trainer.get_predictor({"x"}, {"doubled"});
  EXPECT_THAT(collected_names(trainer.graph(), "outputs"), ElementsAre("doubled"));
}

// "setting attributes of a model instance": every call sets it, and none may depend on it.
TEST(TowerTrainerSpec, AnAttributeOfTheModelIsOfTheLastCall) {
  class Remembers final : public LineModel {
   public:
    void build_graph(const std::vector<Tensor>& inputs) override {
      tower = get_current_tower_context().name();
      LineModel::build_graph(inputs);
    }
    std::string tower;
  };
  const auto object = std::make_shared<Remembers>();
  AnyModel model = object;
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(2));
  trainer.setup_graph(model.inputs, FeedInput(linear_data()), model.build_graph,
                      std::move(model.optimizer));
  EXPECT_EQ(object->tower, "tower1");
  trainer.get_predictor({"x"}, {"prediction"});
  EXPECT_EQ(object->tower, "tower-pred");
}

// The same, broken.
TEST(TowerTrainerSpec, ATowerFunctionWithAStateOfItsOwnIsRefused) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [calls = 0](const Tensor& x, const Tensor& y) mutable { return linear_cost(x * ++calls, y); },
      SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 1, .max_epoch = 1}),
               "the recorded program and the function disagree");
}

// "To use a tensorflow-hub module, you need to initialize the module outside the tower function,
// and call the module inside the tower function."
TEST(TowerTrainerSpec, AModuleIsMadeOutsideAndCalledInside) {
  const torch::nn::Linear line(1, 1);
  const auto tower = [line](const Tensor& x, const Tensor& y) {
    const Tensor prediction = adopt("line", line)->forward(x.unsqueeze(1)).squeeze(1);
    return named("cost", (prediction - y).square().mean());
  };
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(2));
  trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), tower, SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 4, .max_epoch = 100});
  EXPECT_NEAR(line->weight.item<double>(), 2, 1e-2);
  EXPECT_NEAR(line->bias.item<double>(), 1, 1e-2);
}

// The same, broken: a module that is not a part of the graph.
TEST(TowerTrainerSpec, AModuleThatIsNotAdoptedIsTold) {
  const torch::nn::Linear line(1, 1);
  SimpleTrainer trainer;
  EXPECT_ERROR(trainer.setup_graph(
                   linear_inputs(), FeedInput(linear_data()),
                   [line](const Tensor& x, const Tensor& y) {
                     torch::nn::Linear module = line;
                     return (module->forward(x.unsqueeze(1)).squeeze(1) - y).square().mean();
                   },
                   SGD()),
               "a torch::nn module becomes part of the graph by adopt()");
}

// Counts the steps in a variable that prediction needs, too.
Tensor cost_with_statistics(const Tensor& x, const Tensor& y) {
  const Tensor mean = get_variable("mean", {}, {.role = VariableRole::kModel});
  if (is_training()) {
    torch::NoGradGuard no_grad;
    mean.copy_(0.5 * mean + 0.5 * x.mean());
  }
  named("mean", mean + 0);
  return linear_cost(x, y);
}

// "2. It must respect variable collections: (Required) Only put variables trainable by gradient
// descent into `TRAINABLE_VARIABLES`."
TEST(TowerTrainerSpec, OnlyTrainableVariablesAreTrained) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), cost_with_statistics,
                      SGD({.lr = 0.1, .momentum = 0.9}));
  std::vector<std::string> trainable;
  for (const Variable* variable : trainer.variables().trainable()) {
    trainable.push_back(variable->name);
  }
  EXPECT_THAT(trainable, UnorderedElementsAre("w", "b"));
}

// The same, broken: a warning, since it would never change.
TEST(TowerTrainerSpec, ATrainableVariableWithoutAGradientIsTold) {
  SimpleTrainer trainer;
  const std::string log = stdout_of([&] {
    trainer.setup_graph(
        linear_inputs(), FeedInput(linear_data()),
        [](const Tensor& x, const Tensor& y) {
          get_variable("mean", {});
          return linear_cost(x, y);
        },
        SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 1, .max_epoch = 1});
  });
  EXPECT_THAT(log, HasSubstr("Without a gradient, 1 trainable variable will not change: mean."));
}

// "(Recommended) Put non-trainable variables that need to be used in inference into
// `MODEL_VARIABLES`."
TEST(TowerTrainerSpec, AModelVariableIsSavedAndUsedInInference) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), cost_with_statistics,
                      SGD({.lr = 0.1}));
  const auto mean = trainer.get_predictor({"x"}, {"mean"});
  trainer.train({.steps_per_epoch = 1, .max_epoch = 1});
  const double first_batch = (*linear_data().next())[0].mean().item<double>();
  EXPECT_FLOAT_EQ(mean(torch::ones({1}))[0].item<float>(), 0.5F * static_cast<float>(first_batch));
  EXPECT_TRUE(trainer.variables().at("mean").is_saved());
}

// The same, broken: a variable that no checkpoint has.
TEST(TowerTrainerSpec, ALocalVariableIsRefusedInInference) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [](const Tensor& x, const Tensor& y) {
        get_variable("mean", {}, {.role = VariableRole::kLocal});
        return linear_cost(x, y);
      },
      SGD());
  EXPECT_ERROR(trainer.get_predictor({"x"}, {"prediction"}),
               "'mean' is a local variable, which no checkpoint has");
}

// "3. It must respect variable scope names: The name of any trainable variables created in the
// function must be like "variable_scope_name/other/scopes/and/name"."
TEST(TowerTrainerSpec, NamesAreMadeOfScopes) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [](const Tensor& x, const Tensor& y) {
        const VariableScope outer("model");
        const VariableScope inner("line");
        return linear_cost(x, y);
      },
      SGD());
  EXPECT_THAT(names_of(trainer), IsSupersetOf({"model/line/w", "model/line/b"}));
}

// "Strictly speaking, the name of any trainable variables must: Start with the name of the
// enclosing variable_scope when the tower function is called."
TEST(TowerTrainerSpec, NamesStartWithTheScopeAroundSetupGraph) {
  SimpleTrainer trainer;
  {
    const VariableScope outer("outer");
    const VariableScope inner("inner");
    trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost,
                        Adam({.lr = 0.05}));
  }
  EXPECT_THAT(names_of(trainer), IsSupersetOf({"outer/inner/w", "outer/inner/b"}));
  EXPECT_THAT(names_of(trainer), Not(Contains("w")));
  // Inference has the same variables, though the scope is closed, or another one is open.
  const VariableScope another("another");
  const auto predict = trainer.get_predictor({"x"}, {"outer/inner/prediction"});
  trainer.train_with_defaults({
      .callbacks = {InferenceRunner(linear_data(), {ScalarStats({"outer/inner/cost"})})},
      .monitors = OwnedList<MonitorBase>(),
      .steps_per_epoch = 4,
      .max_epoch = 100,
  });
  EXPECT_NEAR(line_of(trainer, "outer/inner/").w, 2, 1e-2);
  EXPECT_NEAR(predict(torch::ones({1}))[0].item<double>(), 3, 2e-2);
  EXPECT_LT(trainer.monitors().get_latest("validation_outer/inner/cost"), 1e-3);
}

// The same, around a whole training, with what callbacks and summaries make.
TEST(TowerTrainerSpec, NamesStartWithTheScopeAroundALaunch) {
  class Summarised final : public LineModel {
   public:
    void build_graph(const std::vector<Tensor>& inputs) override {
      LineModel::build_graph(inputs);
      add_moving_summary(cost);
    }
  };
  SimpleTrainer trainer;
  TrainConfig config{
      .model = Summarised(),
      .dataflow = linear_data(),
      .callbacks = {InferenceRunner(linear_data(), {ScalarStats({"net/cost"})}),
                    ScheduledHyperParamSetter("learning_rate", {{1, 0.1}, {50, 0.01}})},
      .monitors = OwnedList<MonitorBase>(),
      .max_epoch = 50,
  };
  {
    const VariableScope scope("net");
    launch_train_with_config(config, trainer);
  }
  EXPECT_NEAR(line_of(trainer, "net/").w, 2, 1e-2);
  EXPECT_LT(trainer.monitors().get_latest("validation_net/cost"), 1e-3);
  EXPECT_LT(trainer.monitors().get_latest("net/cost"), 1e-2);
}

// The same, of several towers: each has the scope, behind what tells their variables apart.
TEST(TowerTrainerSpec, ReplicasHaveTheEnclosingScopeToo) {
  SyncMultiGPUTrainerReplicated replicas(Devices::cpu(2));
  SyncMultiGPUTrainerParameterServer shared(Devices::cpu(2));
  {
    const VariableScope scope("net");
    build_two(replicas, linear_cost);
    shared.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  }
  EXPECT_THAT(names_of(replicas), IsSupersetOf({"net/w", "net/b", "tower1/net/w", "tower1/net/b"}));
  EXPECT_THAT(names_of(shared), Not(Contains(HasSubstr("tower1"))));
  replicas.train({.steps_per_epoch = 4, .max_epoch = 50});
  shared.train({.steps_per_epoch = 4, .max_epoch = 50});
  EXPECT_NEAR(line_of(replicas, "net/").w, 2, 1e-2);
  EXPECT_NEAR(line_of(shared, "net/").w, 2, 1e-2);
}

// The same, of a trainer of one's own, of another function for inference, and of a plain tower.
TEST(TowerTrainerSpec, EveryTowerHasTheEnclosingScope) {
  class LineTrainer final : public TowerTrainer {
   public:
    LineTrainer() {
      setup_tower(linear_inputs(), FeedInput(linear_data()), linear_cost);
      set_train_op(define("train_op", [sgd = SGD({.lr = 0.1})](TowerContext& tower) mutable {
        minimize(sgd, tower.tensor("net/cost"), "^net/w");
      }));
    }
  };
  std::optional<LineTrainer> trainer;
  {
    const VariableScope scope("net");
    trainer.emplace();
    const TowerContext tower(trainer->graph());
    get_variable("w", {});
  }
  trainer->build_prediction_tower(
      {.tower_func = [](const Tensor& x) { named("twice", get_variable("w", {}) * x * 2); },
       .inputs = {{"x", {-1}}}});
  trainer->train({.steps_per_epoch = 1, .max_epoch = 1});
  std::vector<std::string> trainable;
  for (const Variable* variable : trainer->variables().trainable()) {
    trainable.push_back(variable->name);
  }
  EXPECT_THAT(trainable, UnorderedElementsAre("net/w", "net/b"));
}

// The same, of a predictor of its own.
TEST(TowerTrainerSpec, APredictorHasTheEnclosingScope) {
  const VariableScope scope("net");
  OfflinePredictor predict({.inputs = linear_inputs(),
                            .tower_func = linear_cost,
                            .session_init = DictRestore({{"net/w", torch::full({}, 3.0F)},
                                                         {"net/b", torch::full({}, 1.0F)}}),
                            .input_names = {"x"},
                            .output_names = {"net/prediction"}});
  EXPECT_EQ(predict(torch::ones({1}))[0].item<float>(), 4);
}

// "Not use the same variable_scope's name twice in its name": the library adds none a second time,
// and a function that does works all the same.
TEST(TowerTrainerSpec, AScopeThatIsOpenedTwiceStandsInTheNameTwice) {
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  build_two(trainer, [](const Tensor& x, const Tensor& y) {
    const VariableScope once("net");
    const VariableScope twice("net");
    return linear_cost(x, y);
  });
  EXPECT_NO_THROW(trainer.get_predictor({"x"}, {"net/net/prediction"}));
  EXPECT_THAT(names_of(trainer), IsSupersetOf({"net/net/w", "tower1/net/net/w"}));
  trainer.train({.steps_per_epoch = 4, .max_epoch = 50});
  EXPECT_NEAR(line_of(trainer, "net/net/").w, 2, 1e-2);
}

// "Not depend on name_scope's name": towers and modes, which had one each, have none here.
TEST(TowerTrainerSpec, NamesDoNotDependOnTheTowerOrTheMode) {
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(2));
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD());
  const auto names = names_of(trainer);
  EXPECT_NO_THROW(trainer.get_predictor({"x"}, {"prediction"}));
  EXPECT_EQ(names_of(trainer), names);
}

// The same, broken.
TEST(TowerTrainerSpec, ANameThatDependsOnTheTowerOrTheModeIsRefused) {
  const auto with_layer = [](auto name) {
    return [name](const Tensor& x, const Tensor& y) {
      const VariableScope scope(name());
      get_variable("W", {});
      return linear_cost(x, y);
    };
  };
  const auto by_tower =
      with_layer([] { return "fc" + std::to_string(get_current_tower_context().index()); });
  SyncMultiGPUTrainerParameterServer towers(Devices::cpu(2));
  EXPECT_ERROR(towers.setup_graph(linear_inputs(), FeedInput(linear_data()), by_tower, SGD()),
               "the trainable variable 'fc1/W' exists in this tower but not in the first one");
  const auto by_mode = with_layer([] { return is_training() ? "fc" : "fc-pred"; });
  SimpleTrainer modes;
  modes.setup_graph(linear_inputs(), FeedInput(linear_data()), by_mode, SGD());
  EXPECT_ERROR(modes.get_predictor({"x"}, {"prediction"}),
               "the trainable variable 'fc-pred/W' exists in this tower but not in the first one");
}

// "Not depend on any tensor's name (because the tensor's name may depend on name_scope's name)."
// Here a tensor has the same name in every tower, so that a name that depends on it is the same.
TEST(TowerTrainerSpec, ATensorHasTheSameNameInEveryTower) {
  std::set<std::string> names;
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(2));
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [&](const Tensor& x, const Tensor& y) {
        const Tensor doubled = named("doubled", x * 2);
        const std::string name = get_current_tower_context().call().name_of(doubled);
        names.insert(name);
        const VariableScope scope(name);
        return linear_cost(doubled, y);
      },
      SGD());
  EXPECT_NO_THROW(trainer.get_predictor({"x"}, {"doubled/prediction"}));
  EXPECT_THAT(names, ElementsAre("doubled"));
}

// "Tensorpack layers create variables based on the name given to the layer: e.g., `Conv2D('test',
// x)` will open a variable scope named "test". In order to respect the above rules, the name of the
// layer must not depend on name_scope's name or any tensor's name."
TEST(TowerTrainerSpec, ALayerOpensAScopeOfItsName) {
  Graph graph;
  const TowerContext tower(graph);
  Conv2D("test", torch::ones({1, 1, 4, 4}), {.filters = 2, .kernel_size = 3});
  EXPECT_THAT(graph.variables().names(), IsSupersetOf({"test/W", "test/b"}));
}

// "4. It must respect variable scope reuse: The creation of any trainable variables must respect
// reuse variable scope. To respect variable reuse (i.e. sharing), use `tf.get_variable` instead of
// `tf.Variable` in the function."
TEST(TowerTrainerSpec, GetVariableRespectsReuse) {
  Graph graph;
  const TowerContext tower(graph);
  for (int i = 0; i < 2; ++i) {
    const VariableScope shared("shared", Reuse::kAuto);
    get_variable("W", {2});
  }
  const VariableScope again("shared", Reuse::kReuse);
  EXPECT_TRUE(get_variable("W", {2}).is_same(graph.variables().at("shared/W").tensor));
  EXPECT_ERROR(get_variable("V", {2}), "'shared/V' does not exist and its scope has Reuse::kReuse");
}

// The same, of the scope around setup_graph(), which may be the root.
TEST(TowerTrainerSpec, TheReuseAroundSetupGraphIsRespected) {
  const auto twice = [](const Tensor& x, const Tensor& y) {
    return (get_variable("w", {}) * x + get_variable("w", {}) - y).square().mean();
  };
  SimpleTrainer shares;
  {
    const VariableScope scope(Reuse::kAuto);
    shares.setup_graph(linear_inputs(), FeedInput(linear_data()), twice, SGD());
  }
  EXPECT_NO_THROW(shares.get_predictor({"x", "y"}, {"x"}));
  SimpleTrainer does_not;
  EXPECT_ERROR(does_not.setup_graph(linear_inputs(), FeedInput(linear_data()), twice, SGD()),
               "'w' is already used in this tower call");
}

// The same, broken: two layers that share weights by accident.
TEST(TowerTrainerSpec, ASecondUseOfANameWithoutReuseIsRefused) {
  Graph graph;
  const TowerContext tower(graph);
  FullyConnected("fc", torch::ones({1, 2}), {.units = 2});
  EXPECT_ERROR(FullyConnected("fc", torch::ones({1, 2}), {.units = 2}),
               "'fc/W' is already used in this tower call");
}

// "On the other hand, for a non-trainable variable, it may be desirable to not reuse it between
// towers. In this case, `tf.Variable` can be used to ensure creation of new variables in each tower
// even when `reuse=True`."
TEST(TowerTrainerSpec, ATowerMayHaveVariablesOfItsOwn) {
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(2));
  trainer.setup_graph(
      {{"x", {-1}}}, numbers(),
      [](const Tensor& x) {
        const VariableScope scope("stats", Reuse::kAuto);
        {
          torch::NoGradGuard no_grad;
          get_tower_variable("sum", {}).add_(x.sum());
        }
        return (get_variable("w", {}) * x).mean();
      },
      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
  const auto sum_of = [&](int tower) {
    return trainer.variables().at(tower_variable_name(tower, "stats/sum")).tensor.item<double>();
  };
  EXPECT_EQ(sum_of(0), 0 + 2);
  EXPECT_EQ(sum_of(1), 1 + 3);
}

// "Do not modify the reuse option (e.g., by `scope.reuse_variables()`) of a variable scope that is
// not created by you. This affects other's code. You can always open new scopes if you need the
// reuse option."
TEST(TowerTrainerSpec, TheReuseOfAScopeIsThatOfWhoOpenedIt) {
  Graph graph;
  const TowerContext tower(graph);
  const VariableScope mine("mine");
  {
    const VariableScope yours("yours", Reuse::kAuto);
    EXPECT_EQ(VariableScope::current_reuse(), Reuse::kAuto);
    get_variable("W", {});
    EXPECT_NO_THROW(get_variable("W", {}));
  }
  EXPECT_EQ(VariableScope::current_reuse(), Reuse::kNone) << "as before: nothing can change it";
  get_variable("W", {});
  EXPECT_ERROR(get_variable("W", {}), "'mine/W' is already used in this tower call");
}

// "5. It must not create scopes or variables containing the name 'tower', as it is reserved for
// special use."
TEST(TowerTrainerSpec, TheNameTowerIsReserved) {
  Graph graph;
  const TowerContext tower(graph);
  for (const std::string name : {"tower", "tower1", "my_tower"}) {
    EXPECT_ERROR(VariableScope{name}, "contains the reserved word 'tower'");
    EXPECT_ERROR(get_variable(name, {}), "contains the reserved word 'tower'");
  }
  EXPECT_NO_THROW(get_variable("tow", {}));
}

// "What You Can Do Inside a Tower Function: 1. Call any symbolic functions as long as they follow
// the above rules."
TEST(TowerTrainerSpec, AnySymbolicFunctionIsCalled) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1, 4}}, {"y", {-1}}},
      QueueInput(FakeData({{.shape = {4}}, {.shape = {}}}) | batch(8)),
      [](const Tensor& x, const Tensor& y) {
        const Tensor spectrum = torch::fft_rfft(x).abs();
        const Tensor sorted = std::get<0>(spectrum.sort(1));
        const Tensor l = FullyConnected("fc", sorted, {.units = 1}).squeeze(1);
        return torch::huber_loss(torch::silu(l), y);
      },
      Adam({.lr = 1e-2}));
  EXPECT_NO_THROW(trainer.train({.steps_per_epoch = 3, .max_epoch = 1}));
}

// "2. The tower function will be called under a TowerContext, which can be accessed by
// get_current_tower_context(). The context contains information about training/inference mode,
// scope name, etc."
TEST(TowerTrainerSpec, TheContextTellsModeNameIndexAndDevice) {
  std::vector<std::string> contexts;
  const auto tower = [&](const Tensor& x, const Tensor& y) {
    const TowerContext& context = get_current_tower_context();
    const std::string text =
        fmt::format("{} {} of {} on {}{}", context.name(), context.index(), context.total(),
                    context.device().str(), context.is_training() ? ", training" : ", inference");
    if (contexts.empty() || contexts.back() != text) contexts.push_back(text);
    return linear_cost(x, y);
  };
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  build_two(trainer, tower);
  trainer.get_predictor({"x"}, {"prediction"});
  EXPECT_THAT(contexts,
              ElementsAre("tower0 0 of 2 on cpu, training", "tower1 1 of 2 on cpu, training",
                          "tower-pred 0 of 1 on cpu, inference"));
}

// The same, broken: there is none outside.
TEST(TowerTrainerSpec, OutsideOfATowerFunctionThereIsNoContext) {
  EXPECT_ERROR(get_current_tower_context(), "no tower function is being called on this thread");
}

// "You can use the context to build a different graph under different mode."
TEST(TowerTrainerSpec, AnotherModeMayHaveAnotherGraph) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [](const Tensor& x, const Tensor& y) {
        const bool trains = get_current_tower_context().is_training();
        named("noisy", trains ? x + torch::rand_like(x) : x);
        return linear_cost(x, y);
      },
      SGD());
  const auto noisy = trainer.get_predictor({"x"}, {"noisy"});
  trainer.train({.steps_per_epoch = 0, .max_epoch = 1});
  const Tensor x = torch::ones({5});
  EXPECT_TRUE(torch::equal(noisy(x)[0], x));
  const Feeds feeds = {{"x", x}, {"y", x}};
  EXPECT_FALSE(torch::equal(trainer.sess().run(trainer.train_op(), {"noisy"}, feeds)[0], x));
}

// --- Write a Trainer ---

// "You can customize the trainer by either using or inheriting the `Trainer`/`TowerTrainer` class."
// "Tensorpack examples include several different GAN trainers for a reference."
TEST(TowerTrainerSpec, ATowerTrainerOfOnesOwnRunsTwoOpsInAStep) {
  class Alternating final : public TowerTrainer {
   public:
    Alternating() {
      setup_tower(linear_inputs(), QueueInput(linear_data()), linear_cost);
      w_op_ = define("w_op", [sgd = SGD({.lr = 0.1, .scope = "w"})](TowerContext& tower) mutable {
        minimize(sgd, tower.tensor("cost"), "^w$");
      });
      b_op_ = define("b_op", [sgd = SGD({.lr = 0.1, .scope = "b"})](TowerContext& tower) mutable {
        minimize(sgd, tower.tensor("cost"), "^b$");
      });
    }
    void run_step() override {
      hooked_sess().run(w_op_);
      hooked_sess().run(b_op_);
    }

   private:
    Op w_op_, b_op_;
  };
  Alternating trainer;
  trainer.train({.steps_per_epoch = 4, .max_epoch = 100});
  expect_learned(trainer);
  EXPECT_EQ(trainer.global_step(), 800);
}

}  // namespace
}  // namespace tensorpack
