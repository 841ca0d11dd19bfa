// SPDX-License-Identifier: Apache-2.0
// The document "Trainer", sentence by sentence. What it shares with "Understand Trainer" is in
// 000_understand_trainer_test.cpp: "Training is running something again and again", and the two
// ways to customize the iteration.
#include <gmock/gmock.h>

#include "tests/spec/support.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

TrainConfig line_config() {
  return {.model = LineModel(),
          .dataflow = linear_data(),
          .callbacks = {},
          .monitors = OwnedList<MonitorBase>(),
          .max_epoch = 50};
}

// "These trainers will build the graph based on the given `ModelDesc`, and minimizes
// `ModelDesc.cost`. To use trainers, pass a `TrainConfig` to configure them:
//   config = TrainConfig(
//              model=MyModel()
//              dataflow=my_dataflow,
//              # data=my_inputsource, # alternatively, use a customized InputSource
//              callbacks=[...]
//            )
//   # start training:
//   SomeTrainer(config, other_arguments).train()"
TEST(TrainerSpec, ATrainerOfAConfigMinimizesTheCostOfItsModel) {
  class MyModel final : public LineModel {};
  const auto my_dataflow = [] { return linear_data(); };
  double w = 0;
  TrainConfig config{
      .model = MyModel(),
      .dataflow = my_dataflow(),
      .callbacks = {CallbackFactory(
          {.after_train =
               [&](Callback& self) {
                 w = self.graph().variables().at("w").tensor.item<double>();
               }})},
      .monitors = OwnedList<MonitorBase>(),
      .max_epoch = 50,
  };
  SimpleTrainer(config, {.seed = 1}).train();
  EXPECT_NEAR(w, 2, 1e-2);
}

// The same, with every trainer that minimises one cost.
template <typename T>
class EveryTrainerSpec : public testing::Test {};
using SingleCostTrainers =
    testing::Types<SimpleTrainer, QueueInputTrainer, SyncMultiGPUTrainerReplicated,
                   SyncMultiGPUTrainerParameterServer, SyncMultiGPUTrainer, AsyncMultiGPUTrainer,
                   DistributedTrainer, HorovodTrainer>;
TYPED_TEST_SUITE(EveryTrainerSpec, SingleCostTrainers);

TYPED_TEST(EveryTrainerSpec, TrainsWithAConfig) {
  TypeParam moved(line_config());
  moved.train();
  expect_learned(moved);
  TrainConfig config = line_config();
  TypeParam named(config);
  named.train();
  expect_learned(named);
}

// The same: the one trainer that does not minimise, but takes what the others do.
TEST(TrainerSpec, ANoOpTrainerTakesAConfigToo) {
  TrainConfig config = line_config();
  NoOpTrainer trainer(config);
  trainer.train();
  EXPECT_EQ(trainer.global_step(), 200);
  EXPECT_EQ(line_of(trainer), Line());
}

// "SomeTrainer(config, other_arguments)"
TEST(TrainerSpec, OtherArgumentsFollowTheConfig) {
  EXPECT_EQ(SimpleTrainer(line_config(), {.seed = 3}).graph().seed(), 3);
  const auto towers_of = [](SingleCostTrainer&& trainer) {
    return trainer.parallel().devices.size();
  };
  const Devices three = Devices::cpu(3);
  EXPECT_EQ(towers_of(SyncMultiGPUTrainerReplicated(line_config(), three, {.average = false})), 3);
  EXPECT_EQ(towers_of(SyncMultiGPUTrainerParameterServer(line_config(), three,
                                                         {.ps_device = ServerDevice::kCpu})),
            3);
  EXPECT_EQ(towers_of(SyncMultiGPUTrainer(line_config(), three)), 3);
  EXPECT_EQ(towers_of(AsyncMultiGPUTrainer(line_config(), three, {.scale_gradient = false})), 3);
  EXPECT_EQ(towers_of(HorovodTrainer(line_config(), {.devices = three})), 3);
}

// The same: a config is for one training.
TEST(TrainerSpec, AConfigOfATrainerIsConsumed) {
  TrainConfig config = line_config();
  SimpleTrainer trainer(config);
  EXPECT_ERROR(SimpleTrainer(config),
               "[TrainConfig] there is no model. Set .model; of a config "
               "that a training was launched with before");
  trainer.train();
  EXPECT_ERROR(trainer.train(), "[TrainConfig] there is no model.");
  EXPECT_ERROR(SimpleTrainer().train(),
               "[train] this trainer was constructed without a TrainConfig.");
}

// "# data=my_inputsource, # alternatively, use a customized InputSource"
// "You can set the InputSource instead, to customize this behavior."
TEST(TrainerSpec, AnInputSourceTakesThePlaceOfTheDataflow) {
  class MyInputSource final : public InputSource {
   public:
    void reset_state(int64_t position) override { position_ = position; }
    std::optional<DataPoint> next() override {
      const Tensor x = torch::linspace(-1, 1, 4) + 0.1 * (position_++ % 3);
      return DataPoint{x, 2 * x + 1};
    }
    int64_t position() const override { return position_; }
    std::optional<int64_t> size() const override { return 6; }
    void stop() override {}

   private:
    int64_t position_ = 0;
  };
  TrainConfig config = line_config();
  config.dataflow = nullptr;
  config.data = MyInputSource();
  SimpleTrainer trainer(config);
  trainer.train();
  expect_learned(trainer);
  EXPECT_EQ(trainer.steps_per_epoch(), 6);
}

// "# start multi-GPU training with a synchronous update:
//  # SyncMultiGPUTrainerParameterServer(config).train()"
TEST(TrainerSpec, WithoutDevicesAllVisibleGpusAreTakenElseTheCpu) {
  TrainConfig config = line_config();
  SyncMultiGPUTrainerParameterServer(config).train();
  const Devices visible = Devices::visible();
  const auto devices = SyncMultiGPUTrainerParameterServer(line_config()).parallel().devices;
  EXPECT_EQ(devices.list(), visible.list());
  if (!visible.list()[0].is_cuda()) {
    EXPECT_THAT(visible.list(), ElementsAre(c10::Device(c10::kCPU)));
  }
}

// "When you set the DataFlow (rather than the InputSource) in the config, tensorpack trainers
// automatically pick up certain prefetch mechanism"
TEST(TrainerSpec, ADataflowIsPrefetched) {
  const std::string log = stdout_of([] { SimpleTrainer(line_config()).train(); });
  EXPECT_THAT(log, HasSubstr("The dataflow is read ahead by a QueueInput."));
  TrainConfig config = line_config();
  QueueInputTrainer insists_on_a_queue(config);
  EXPECT_NO_THROW(insists_on_a_queue.train());
}

// "Existing multi-GPU trainers include the logic of data-parallel training. You can enable them by
// just one line"
TEST(TrainerSpec, OneLineEnablesDataParallelTraining) {
  TrainConfig config = line_config();
  SyncMultiGPUTrainerReplicated trainer(config, Devices::cpu(2));
  trainer.train();
  expect_learned(trainer);
  EXPECT_EQ(trainer.towers().training().size(), 2);
}

// Adds to a number that each tower has for itself.
void count(const std::string& name, const Tensor& amount) {
  torch::NoGradGuard no_grad;
  get_tower_variable(name, {}).add_(amount);
}

// "Please note that, in data-parallel training, all towers (all replicates of the model) will take
// tensors from the InputSource (instead of taking one for all and split). So the total batch size
// would be multiplied by the number of GPUs."
TEST(TrainerSpec, EveryTowerTakesABatchOfItsOwn) {
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(3));
  const auto taken = std::make_shared<int64_t>(0);
  trainer.setup_graph(
      {{"x", {-1}}}, TensorInput([taken](int64_t number) {
        *taken = number + 1;
        return DataPoint{torch::full({4}, number, torch::kFloat)};
      }),
      [](const Tensor& x) {
        count("images", torch::ones_like(x).sum());
        count("sum", x.sum());
        return (get_variable("w", {}) * x).mean();
      },
      SGD({.lr = 0}));
  trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
  EXPECT_EQ(*taken, 6) << "two steps, three towers";
  double images = 0;
  std::vector<double> sums;
  for (int tower = 0; tower < 3; ++tower) {
    const auto total = [&](const std::string& name) {
      return trainer.variables().at(tower_variable_name(tower, name)).tensor.item<double>();
    };
    images += total("images");
    sums.push_back(total("sum"));
  }
  EXPECT_EQ(images, 4 * 3 * 2) << "batch size x towers, in each of two steps";
  EXPECT_THAT(sums, ElementsAre(4 * (0 + 3), 4 * (1 + 4), 4 * (2 + 5)));
}

// "Trainers just run some iterations, so there is no limit in where the data come from or what to
// do in an iteration."
TEST(TrainerSpec, DataComesFromAnywhere) {
  class FeedsItself final : public TowerTrainer {
   public:
    FeedsItself() {
      const auto last = std::make_shared<double>(1);
      setup_tower({{"x", {}}},
                  TensorInput([last](int64_t) { return DataPoint{torch::full({}, *last)}; }),
                  [](const Tensor& x) { named("next", x * 2); });
      op_ = define("op", {});
      last_ = last;
    }
    void run_step() override { *last_ = hooked_sess().run(op_, {"next"})[0].item<double>(); }
    double last() const { return *last_; }

   private:
    Op op_;
    std::shared_ptr<double> last_;
  };
  FeedsItself trainer;
  trainer.train({.steps_per_epoch = 8, .max_epoch = 1});
  EXPECT_EQ(trainer.last(), 256);
}

// "The existing trainers implement the default logic, but you can implement them yourself by using
// the base `Trainer` class."
TEST(TrainerSpec, TheDefaultLogicIsWrittenWithTheBaseTrainer) {
  class MySimpleTrainer final : public Trainer {
   public:
    MySimpleTrainer(DataFlowPtr flow, SGD optimizer) {
      set_train_op(graph().define(
          {.name = "train_op",
           .inputs = linear_inputs(),
           .body =
               [&graph = graph(), optimizer](const std::vector<Tensor>& batch) mutable {
                 TowerContext tower(graph);
                 minimize(optimizer, linear_cost(batch[0], batch[1]));
                 return tower.call().named_tensors();
               },
           .feeder =
               [flow = std::shared_ptr(std::move(flow))] { return flow->next()->components(); }}));
    }
  };
  MySimpleTrainer mine(linear_data() | repeat(), SGD({.lr = 0.1}));
  SimpleTrainer existing;
  existing.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  mine.train({.steps_per_epoch = 4, .max_epoch = 50});
  existing.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(mine);
  EXPECT_EQ(line_of(mine), line_of(existing));
}

// Tells where it is called.
class SetupTrainer : public Trainer {
 public:
  std::vector<std::string> calls;

 protected:
  void setup() override {
    calls.emplace_back("setup");
    set_train_op(count_runs(graph()));
  }
};

class NotesSetup final : public Callback {
 public:
  explicit NotesSetup(std::vector<std::string>& calls) : calls_(&calls) {}
  void setup_graph() override { calls_->emplace_back("setup_graph of a callback"); }

 private:
  std::vector<std::string>* calls_;
};

// "Two ways to customize the graph: 1. Create the graph, add any tensors and ops before creating
// the trainer. 2. Subclass `Trainer` and override the `_setup()` method which will be called in
// `Trainer.__init__`."
TEST(TrainerSpec, SetupIsCalledOnceBeforeAnyCallback) {
  SetupTrainer trainer;
  EXPECT_THAT(trainer.calls, ElementsAre()) << "a constructor of C++ cannot call it";
  trainer.train({.callbacks = {NotesSetup(trainer.calls)}, .steps_per_epoch = 3, .max_epoch = 2});
  EXPECT_THAT(trainer.calls, ElementsAre("setup", "setup_graph of a callback"));
  EXPECT_EQ(runs_of(trainer), 6);
}

// The same, by the name that begins with an underscore.
TEST(TrainerSpec, SetupHasItsOlderNameToo) {
  class OldTrainer final : public Trainer {
   protected:
    void _setup() override { set_train_op(count_runs(graph())); }
  };
  OldTrainer trainer;
  trainer.train_with_defaults(
      {.monitors = OwnedList<MonitorBase>(), .steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_EQ(runs_of(trainer), 3);
}

// The same: a graph from setup() may have a tower function.
TEST(TrainerSpec, SetupMayGiveATowerFunction) {
  class LineTrainer final : public TowerTrainer {
   protected:
    void setup() override {
      setup_tower(linear_inputs(), QueueInput(linear_data()), linear_cost);
      set_train_op(define("train_op", [sgd = SGD({.lr = 0.1})](TowerContext& tower) mutable {
        minimize(sgd, tower.tensor("cost"));
      }));
    }
  };
  LineTrainer trainer;
  trainer.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(trainer);
}

}  // namespace
}  // namespace tensorpack
