// SPDX-License-Identifier: Apache-2.0
// The document "Training Interface", sentence by sentence.
#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include "tensorpack/utils/class_name.h"
#include "tensorpack/utils/device.h"
#include "tensorpack/utils/fs.h"
#include "tests/spec/support.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// "Tensorpack trainers have an interface for maximum flexibility. Then, there are interfaces built
// on top of trainers to simplify the use, when you don't want to customize too much."
TEST(TrainingInterfaceSpec, EveryInterfaceTrainsTheSame) {
  constexpr int64_t kSteps = 4;  // the size of the data
  TowerTrainer flexible;
  flexible.setup_tower(linear_inputs(), QueueInput(linear_data()), linear_cost);
  flexible.set_train_op(flexible.define("train_op", [sgd = SGD({.lr = 0.1})](auto& tower) mutable {
    minimize(sgd, tower.tensor("cost"));
  }));
  flexible.train({.steps_per_epoch = kSteps, .max_epoch = 2});

  SimpleTrainer single_cost;
  single_cost.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost,
                          SGD({.lr = 0.1}));
  single_cost.train({.steps_per_epoch = kSteps, .max_epoch = 2});

  SimpleTrainer launched;
  launch_train_with_config({.model = LineModel(),
                            .dataflow = linear_data(),
                            .monitors = OwnedList<MonitorBase>(),
                            .max_epoch = 2},
                           launched);
  EXPECT_NE(line_of(flexible), Line());
  EXPECT_EQ(line_of(flexible), line_of(single_cost));
  EXPECT_EQ(line_of(single_cost), line_of(launched));
}

// --- Raw Trainer Interface ---

// "Define: For general trainer, build the graph by yourself. For single-cost trainer, build the
// graph by SingleCostTrainer.setup_graph. Run: Then, call Trainer.train()"
TEST(TrainingInterfaceSpec, TrainRunsWhatWasDefined) {
  Trainer general;
  general.set_train_op(count_runs(general.graph()));
  general.train({.steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_EQ(runs_of(general), 3);

  SimpleTrainer single_cost;
  single_cost.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost,
                          SGD({.lr = 0.1}));
  const std::string log =
      stdout_of([&] { single_cost.train({.steps_per_epoch = 4, .max_epoch = 50}); });
  expect_learned(single_cost);
  EXPECT_TRUE(single_cost.monitors().all().empty());
  EXPECT_THAT(log, Not(HasSubstr("ProgressBar"))) << "no defaults";
}

// What train() or the like was given, as a callback sees it.
class Sees final : public Callback {
 public:
  explicit Sees(std::vector<std::string>& monitors) : monitors_(&monitors) {}
  void before_train() override {
    monitors_->clear();
    for (MonitorBase& monitor : trainer().monitors().all())
      monitors_->push_back(class_name(typeid(monitor)));
  }

 private:
  std::vector<std::string>* monitors_;
};

class TrainingInterfaceFilesSpec : public testing::Test {
 protected:
  TrainingInterfaceFilesSpec() { set_logger_dir(dir_.path()); }
  ~TrainingInterfaceFilesSpec() override { reset_logger_dir(); }
  TempDir dir_;
};

// "or Trainer.train_with_defaults() which applies some defaults options for normal use cases."
TEST_F(TrainingInterfaceFilesSpec, TrainWithDefaultsAddsCallbacksAndMonitors) {
  std::vector<std::string> monitors;
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), QueueInput(linear_data()),
      [](const Tensor& x, const Tensor& y) {
        const Tensor cost = linear_cost(x, y);
        add_moving_summary(cost);
        return cost;
      },
      SGD({.lr = 0.1}));
  trainer.train_with_defaults(
      {.callbacks = {Sees(monitors)}, .steps_per_epoch = 4, .max_epoch = 2});
  EXPECT_THAT(monitors, ElementsAre("TFEventWriter", "JSONWriter", "ScalarPrinter", "Report"));
  EXPECT_TRUE(trainer.monitors().contains("cost")) << "by MergeAllSummaries";
  EXPECT_TRUE(std::filesystem::exists(dir_ / "stats.json"));
}

// --- With ModelDesc and TrainConfig ---

// "`ModelDesc` describes a model by packing 3 of them together into one object:
//   class MyModel(ModelDesc):
//     def _get_inputs(self):
//       return [InputDesc(...), InputDesc(...)]
//     def _build_graph(self, inputs):
//       tensorA, tensorB = inputs
//       # build the graph
//       self.cost = xxx   # define the cost tensor
//     def _get_optimizer(self):
//       return tf.train.GradientDescentOptimizer(0.1)"
class MyModel : public ModelDesc {
  std::vector<InputDesc> _get_inputs() override {
    return {InputDesc{"x", {-1}}, InputDesc{"y", {-1}}};
  }

  void _build_graph(const std::vector<Tensor>& inputs) override {
    const Tensor& x = inputs[0];
    const Tensor& y = inputs[1];
    const Tensor prediction = get_variable("w", {}) * x + get_variable("b", {});
    cost = (prediction - y).square().mean();
  }

  Owned<Optimizer> _get_optimizer() override { return SGD({.lr = 0.1}); }
};

TrainConfig config_of(AnyModel model) {
  return {.model = std::move(model),
          .dataflow = linear_data(),
          .monitors = OwnedList<MonitorBase>(),
          .max_epoch = 50};
}

TEST(TrainingInterfaceSpec, AModelIsAClass) {
  SimpleTrainer trainer;
  launch_train_with_config(config_of(MyModel()), trainer);
  expect_learned(trainer);
}

// The same, in the names without an underscore, which the other documents use.
TEST(TrainingInterfaceSpec, AModelHasTheNamesOfTodayToo) {
  SimpleTrainer trainer;
  launch_train_with_config(config_of(LineModel()), trainer);
  expect_learned(trainer);
}

// The same: however the object is handed over, it stays what it is.
TEST(TrainingInterfaceSpec, NothingOfAModelIsSlicedOff) {
  class Steeper final : public MyModel {
   public:
    explicit Steeper(double slope) : slope_(slope) {}

   private:
    void _build_graph(const std::vector<Tensor>& inputs) override {
      named("slope", torch::full({}, slope_));
      const Tensor prediction = get_variable("w", {}) * inputs[0] * slope_ + get_variable("b", {});
      cost = (prediction - inputs[1]).square().mean();
    }
    double slope_;
  };
  const auto learned_w = [](AnyModel model) {
    SimpleTrainer trainer;
    launch_train_with_config(config_of(std::move(model)), trainer);
    return line_of(trainer).w;
  };
  EXPECT_NEAR(learned_w(Steeper(2)), 1, 1e-2);
  Steeper named(2);
  EXPECT_NEAR(learned_w(std::move(named)), 1, 1e-2);
  EXPECT_NEAR(learned_w(std::make_unique<Steeper>(2)), 1, 1e-2);
  EXPECT_NEAR(learned_w(std::make_shared<Steeper>(2)), 1, 1e-2);
  EXPECT_NEAR(learned_w(std::unique_ptr<ModelDesc>(std::make_unique<Steeper>(2))), 1, 1e-2);
  EXPECT_NEAR(learned_w(Owned<ModelDesc>(Steeper(2))), 1, 1e-2);
  const std::shared_ptr<ModelDesc> kept = std::make_shared<Steeper>(2);
  EXPECT_NEAR(learned_w(kept), 1, 1e-2);
  EXPECT_NEAR(learned_w(kept), 1, 1e-2) << "of a shared one, several configs";
  EXPECT_ERROR(learned_w(std::unique_ptr<MyModel>()), "[ModelDesc] the model is null.");
}

// The same: a model that is a value, with functions in place of methods.
TEST(TrainingInterfaceSpec, AModelMayBeAValue) {
  const auto line_model = []() -> Model {
    return {.inputs = linear_inputs(), .build_graph = linear_cost, .optimizer = SGD({.lr = 0.1})};
  };
  SimpleTrainer trainer;
  launch_train_with_config(config_of(line_model()), trainer);
  expect_learned(trainer);
}

// "`_get_inputs` should define the metainfo of all the inputs your graph will take to build.
// `_build_graph` takes a list of `inputs` tensors which will match `_get_inputs`."
TEST(TrainingInterfaceSpec, TheListOfInputsMatchesTheirDescriptions) {
  class Four final : public ModelDesc {
    std::vector<InputDesc> inputs() override {
      return {{"image", {-1, 3, 8, 8}}, {"label", {-1}, torch::kLong}, {"rate", {}}, {"id", {2}}};
    }
    void build_graph(const std::vector<Tensor>& inputs) override {
      ASSERT_EQ(inputs.size(), 4);
      EXPECT_EQ(inputs[0].sizes().slice(1), at::IntArrayRef({3, 8, 8}));
      EXPECT_EQ(inputs[1].scalar_type(), torch::kLong);
      EXPECT_EQ(inputs[2].dim(), 0);
      EXPECT_EQ(inputs[3].sizes(), at::IntArrayRef({2}));
      cost = (get_variable("w", {}) * inputs[0].mean() * inputs[2]).square();
    }
    Owned<Optimizer> optimizer() override { return SGD({.lr = 0.1}); }
  };
  TrainConfig config{
      .model = Four(),
      .dataflow = FakeData(
          {{.shape = {5, 3, 8, 8}}, {.shape = {5}, .dtype = torch::kLong}, {}, {.shape = {2}}},
          {.size = 3}),
      .monitors = OwnedList<MonitorBase>(),
      .max_epoch = 1};
  SimpleTrainer trainer;
  launch_train_with_config(config, trainer);
  EXPECT_EQ(trainer.global_step(), 3);
  const auto& signature = trainer.input_signature();
  EXPECT_EQ(signature[1].name, "label");
}

// "You can use any symbolic functions in `_build_graph`, including TensorFlow core library
// functions and other symbolic libraries. But you need to follow the requirement of get_cost_fn,
// because this function will be used as part of `get_cost_fn`."
TEST(TrainingInterfaceSpec, TheCostMustBeAScalarThatIsNotDifferentiatedYet) {
  const auto launch_error = [](auto build) {
    class Builds final : public LineModel {
     public:
      explicit Builds(decltype(build) function) : function_(std::move(function)) {}
      void build_graph(const std::vector<Tensor>& inputs) override {
        cost = function_((get_variable("w", {}) * inputs[0] - inputs[1]).square());
      }

     private:
      decltype(build) function_;
    };
    std::string text;
    try {
      launch_train_with_config(config_of(Builds(build)), SimpleTrainer());
    } catch (const Error& error) {
      text = error.what();
    }
    return text;
  };
  EXPECT_EQ(launch_error([](const Tensor& losses) { return losses.logsumexp(0); }), "");
  EXPECT_THAT(launch_error([](const Tensor& losses) { return losses; }),
              HasSubstr("the cost must be a scalar, got a tensor of shape [2]"));
  EXPECT_THAT(launch_error([](const Tensor& losses) {
                const Tensor loss = losses.mean();
                loss.backward();
                return loss;
              }),
              HasSubstr("A tower function calls no .backward()"));
}

// "At last you need to set `self.cost`."
TEST(TrainingInterfaceSpec, AModelThatSetsNoCostIsAnError) {
  class Forgets final : public LineModel {
    void build_graph(const std::vector<Tensor>& inputs) override {
      linear_cost(inputs[0], inputs[1]);
    }
  };
  EXPECT_ERROR(launch_train_with_config(config_of(Forgets()), SimpleTrainer()),
               "[ModelDesc] Forgets::build_graph() has not set the cost. Assign the scalar to "
               "minimise: cost = ...");
}

// The same: to predict, a model needs none.
TEST(TrainingInterfaceSpec, AModelNeedsNoCostToPredict) {
  class Predicts final : public LineModel {
    void build_graph(const std::vector<Tensor>& inputs) override {
      const Tensor prediction = named("prediction", get_variable("w", {}) * inputs[0]);
      if (is_training()) cost = (prediction - inputs[1]).square().mean();
    }
  };
  const AnyModel model = Predicts();
  OfflinePredictor predict({.inputs = model.inputs,
                            .tower_func = model.build_graph,
                            .session_init = DictRestore({{"w", torch::full({}, 3.0F)}}),
                            .input_names = {"x"},
                            .output_names = {"prediction"}});
  EXPECT_EQ(predict(torch::ones({1}))[0].item<float>(), 3);
}

// The same: the error names the class and what it does not say.
TEST(TrainingInterfaceSpec, AModelThatIsNotCompleteIsAnError) {
  class Empty : public ModelDesc {};
  class NoOptimizer : public ModelDesc {
    std::vector<InputDesc> inputs() override { return linear_inputs(); }
  };
  class NoGraph final : public NoOptimizer {
    Owned<Optimizer> optimizer() override { return SGD(); }
  };
  EXPECT_ERROR(AnyModel(Empty()),
               "[ModelDesc] Empty does not say what its inputs are. Override "
               "inputs().");
  EXPECT_ERROR(AnyModel(NoOptimizer()),
               "does not say how its cost is minimised. Override "
               "optimizer().");
  EXPECT_ERROR(launch_train_with_config(config_of(NoGraph()), SimpleTrainer()),
               "does not say how its cost is computed. Override build_graph().");
}

// The same: `cost` belongs to the call.
TEST(TrainingInterfaceSpec, TowersThatBuildAtOnceHaveACostEach) {
  class Meets final : public ModelDesc {
   public:
    void build_graph(const std::vector<Tensor>& inputs) override {
      cost = inputs[0].sum();
      all_have_set_theirs.arrive_and_wait();
      cost = cost + 1;
      all_have_set_theirs.arrive_and_wait();
    }
    std::barrier<> all_have_set_theirs{2};
  };
  Meets model;
  double costs[2] = {};
  const auto build = [&](int index) {
    Graph graph;
    const TowerContext tower(graph, {.index = index, .total = 2});
    model.build_graph({torch::full({1}, 10 * index)});
    costs[index] = model.cost->item<double>();
  };
  std::thread other(build, 1);
  build(0);
  other.join();
  EXPECT_THAT(costs, ElementsAre(1, 11));
}

// The same, in a training whose towers call the model in every step, at the same time.
TEST(TrainingInterfaceSpec, TowersThatRunAtOnceHaveACostEach) {
  TrainConfig config = config_of(MyModel());
  config.session = {.executor = ExecutorKind::kEager};
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  launch_train_with_config(config, trainer);
  expect_learned(trainer);
}

// The same: a model within a model.
TEST(TrainingInterfaceSpec, AModelMayBuildAnotherOne) {
  class WithTeacher final : public LineModel {
   public:
    void build_graph(const std::vector<Tensor>& inputs) override {
      {
        const VariableScope scope("teacher");
        teacher_->build_graph(inputs);
      }
      LineModel::build_graph(inputs);
      cost = cost + 0.5 * teacher_->cost->detach();
      named("total", cost);
    }

   private:
    std::shared_ptr<LineModel> teacher_ = std::make_shared<LineModel>();
  };
  AnyModel model = WithTeacher();
  SimpleTrainer trainer;
  trainer.setup_graph(model.inputs, FeedInput(linear_data()), model.build_graph,
                      std::move(model.optimizer));
  trainer.train({.steps_per_epoch = 0, .max_epoch = 1});
  const Feeds feeds = {{"x", torch::ones({2})}, {"y", torch::full({2}, 3.0)}};
  const FetchedValues values =
      trainer.sess().run(trainer.train_op(), {"cost", "teacher/cost", "total"}, feeds);
  const auto value = [&](size_t i) { return values[i].item<double>(); };
  EXPECT_FLOAT_EQ(value(2), value(0) + value(1) / 2);
}

// The same: outside of a call there is none.
TEST(TrainingInterfaceSpec, ACostOutsideOfItsCallIsAnError) {
  LineModel model;
  EXPECT_ERROR(model.cost = torch::ones({}), "[ModelDesc] cost is set outside of a call");
  EXPECT_ERROR(Tensor(model.cost), "[ModelDesc] cost is read outside of a call");
  Graph graph;
  {
    const TowerContext tower(graph);
    EXPECT_ERROR(Tensor(model.cost), "[ModelDesc] cost is read before it is set in this call.");
    model.build_graph({torch::ones({1}), torch::ones({1})});
    EXPECT_EQ(model.cost->item<double>(), 1);
  }
  const TowerContext next(graph);
  EXPECT_ERROR(Tensor(model.cost), "[ModelDesc] cost is read before it is set in this call.");
}

// "After defining such a model, use it with `TrainConfig` and `launch_train_with_config`:
//   config = TrainConfig(
//      model=MyModel()
//      dataflow=my_dataflow,
//      # data=my_inputsource, # alternatively, use a customized InputSource
//      callbacks=[...],    # some default callbacks are automatically applied
//      # some default monitors are automatically applied
//      steps_per_epoch=300,   # default to the size of your InputSource/DataFlow
//   )
//   trainer = SomeTrainer()
//   # trainer = SyncMultiGPUTrainerParameterServer([0, 1, 2])
//   launch_train_with_config(config, trainer)"
TEST_F(TrainingInterfaceFilesSpec, AConfigAndATrainerAreLaunched) {
  std::vector<std::string> monitors;
  const auto my_dataflow = [] { return linear_data(); };
  TrainConfig config{
      .model = MyModel(),
      .dataflow = my_dataflow(),
      .callbacks = {ModelSaver(), Sees(monitors)},
      .steps_per_epoch = 300,
      .max_epoch = 1,  // the document has none: it would never end
  };
  SimpleTrainer trainer;
  launch_train_with_config(config, trainer);
  expect_learned(trainer);
  EXPECT_EQ(trainer.global_step(), 300);
  EXPECT_FALSE(monitors.empty());
  EXPECT_TRUE(std::filesystem::exists(dir_ / "model-300.safetensors"));
}

// The same, with the trainer in the comment.
TEST(TrainingInterfaceSpec, AConfigIsLaunchedOnThreeTowers) {
  TrainConfig config = config_of(MyModel());
  SyncMultiGPUTrainerParameterServer trainer(Devices::cpu(3));
  launch_train_with_config(config, trainer);
  expect_learned(trainer);
  if (count_devices(c10::kCUDA) < 3) {
    EXPECT_ERROR(SyncMultiGPUTrainerParameterServer({0, 1, 2}), "cannot be used");
  }
}

// "callbacks=[...],    # some default callbacks are automatically applied"
// "# some default monitors are automatically applied"
TEST_F(TrainingInterfaceFilesSpec, DefaultsAreAppliedUnlessListsAreGiven) {
  const auto launched = [](OptionalList<Callback> extra_callbacks,
                           OptionalList<MonitorBase> monitors) {
    TrainConfig config{.model = MyModel(),
                       .dataflow = linear_data(),
                       .extra_callbacks = std::move(extra_callbacks),
                       .monitors = std::move(monitors),
                       .steps_per_epoch = 1,
                       .max_epoch = 1};
    config.callbacks.add(CallbackFactory({}));
    SimpleTrainer trainer;
    const std::string log = stdout_of([&] { launch_train_with_config(config, trainer); });
    return std::pair(trainer.monitors().all().size(),
                     log.find("StopAtNaN is not among the callbacks") == std::string::npos);
  };
  EXPECT_EQ(launched({}, {}), std::pair(default_monitors().size(), true));
  EXPECT_EQ(launched(OwnedList<Callback>(), OwnedList<MonitorBase>()), std::pair(size_t{0}, false));
}

// "steps_per_epoch=300,   # default to the size of your InputSource/DataFlow"
TEST(TrainingInterfaceSpec, StepsPerEpochIsTheSizeOfTheDataByDefault) {
  TrainConfig of_dataflow = config_of(MyModel());
  SimpleTrainer first;
  launch_train_with_config(of_dataflow, first);
  EXPECT_EQ(first.steps_per_epoch(), 4);
  TrainConfig of_source = config_of(MyModel());
  of_source.dataflow = nullptr;
  of_source.data = FeedInput(linear_data() | take(3));
  SimpleTrainer second;
  launch_train_with_config(of_source, second);
  EXPECT_EQ(second.steps_per_epoch(), 3);
}

// The same, for data that has no size.
TEST(TrainingInterfaceSpec, StepsPerEpochIsAskedForWhereTheDataHasNoSize) {
  TrainConfig config = config_of(MyModel());
  config.dataflow = linear_data() | repeat(-1);
  EXPECT_ERROR(launch_train_with_config(config, SimpleTrainer()),
               "steps_per_epoch is not set and the data does not know its size.");
}

// "launch_train_with_config(config, trainer)": with names or temporaries, of either.
TEST(TrainingInterfaceSpec, AConfigAndATrainerMayHaveNames) {
  TrainConfig config = config_of(MyModel());
  launch_train_with_config(config, SimpleTrainer());
  EXPECT_ERROR(launch_train_with_config(config, SimpleTrainer()),
               "[TrainConfig] there is no model. Set .model; of a config that a training was "
               "launched with before, which consumed it, make another one.");
  config = config_of(MyModel());
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  launch_train_with_config(std::move(config), trainer);
  expect_learned(trainer);
  launch_train_with_config({.model = MyModel(),
                            .dataflow = linear_data(),
                            .monitors = OwnedList<MonitorBase>(),
                            .max_epoch = 1},
                           SimpleTrainer());
}

}  // namespace
}  // namespace tensorpack
