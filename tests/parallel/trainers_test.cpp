// SPDX-License-Identifier: Apache-2.0
// Several towers give the numbers of one.
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>

#include "tests/parallel/towers.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

SimpleTrainer one_tower() { return SimpleTrainer(kSeeded); }
SyncMultiGPUTrainerReplicated replicated(int towers) {
  return SyncMultiGPUTrainerReplicated(Devices::cpu(towers), {.graph = kSeeded});
}
SyncMultiGPUTrainerParameterServer parameter_server(int towers) {
  return SyncMultiGPUTrainerParameterServer(Devices::cpu(towers), {.graph = kSeeded});
}

struct Case {
  std::string name = {};
  std::function<at::Tensor(const at::Tensor&)> logits = {};
  std::function<Owned<Optimizer>()> optimizer = {};
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

std::vector<Case> all_cases() {
  struct ModelToTrain {
    std::string name;
    at::Tensor (*logits)(const at::Tensor&);
    double lr = 0.01;
  };
  std::vector<Case> cases;
  for (const auto& [name, logits, lr] : {ModelToTrain{"Mlp", mlp},
                                         {"LeNetWithBatchNorm", lenet_with_batch_norm},
                                         // With 0.001 every step doubles every difference.
                                         {"ResNet18", resnet18, 0.0001},
                                         {"Transformer", transformer}}) {
    cases.push_back({name + "_Sgd", logits, [lr = lr] { return SGD({.lr = lr}); }});
    cases.push_back(
        {name + "_Momentum", logits, [lr = lr] { return SGD({.lr = lr, .momentum = 0.9}); }});
    cases.push_back(
        {name + "_Adam", logits, [lr = lr] { return Adam({.lr = lr / 100, .epsilon = 1e-3}); }});
  }
  return cases;
}

class ManyTowersTest : public testing::TestWithParam<Case> {};

TEST_P(ManyTowersTest, EqualOneTowerWithTheWholeBatch) {
  const Case& c = GetParam();
  const TowerFunc cost = cost_of(c.logits);
  const Values two = train(replicated(2), cost, {4, 50, c.optimizer});
  const Values one = train(one_tower(), cost, {8, 50, c.optimizer});
  expect_close(one, two, 2e-4);
}

INSTANTIATE_TEST_SUITE_P(Zoo, ManyTowersTest, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(TrainersTest, FourTowersEqualOne) {
  expect_close(train(replicated(4), cost_of(mlp), {2}), train(one_tower(), cost_of(mlp), {8}),
               1e-4);
}

// As users write modules: libtorch cannot clone it.
struct PlainModule final : torch::nn::Module {
  PlainModule() { fc = register_module("fc", torch::nn::Linear(144, 3)); }
  at::Tensor forward(const at::Tensor& image) { return fc->forward(image.flatten(1)); }
  torch::nn::Linear fc = nullptr;
};

TEST(TrainersTest, TowersWithAModuleThatTheFunctionMakesEqualOne) {
  const TowerFunc cost = cost_of([](const at::Tensor& image) {
    return adopt("net", std::make_shared<PlainModule>())->forward(image);
  });
  const auto train_seeded = [&](auto trainer, int64_t batch_size) {
    torch::manual_seed(3);
    return train(std::move(trainer), cost, {batch_size});
  };
  expect_close(train_seeded(replicated(2), 4), train_seeded(one_tower(), 8), 1e-4);
}

TEST(TrainersTest, TheParameterServerEqualsReplication) {
  for (const auto& logits : {mlp, lenet_with_batch_norm}) {
    const TrainingOptions options{.optimizer = [] { return Adam({.lr = 1e-3}); }};
    expect_close(train(replicated(3), cost_of(logits), options),
                 train(parameter_server(3), cost_of(logits), options), 1e-4);
  }
}

TEST(TrainersTest, GradientsThatAreAddedUpAreAsManyTimesAsLarge) {
  const TowerFunc cost = cost_of(mlp);
  const Values added =
      train(SyncMultiGPUTrainerReplicated(Devices::cpu(2), {.average = false, .graph = kSeeded}),
            cost, {.optimizer = [] { return SGD({.lr = 0.01}); }});
  const Values averaged =
      train(replicated(2), cost, {.optimizer = [] { return SGD({.lr = 0.02}); }});
  for (const char* name : {"fc0/W", "fc1/b"}) {
    EXPECT_TRUE(at::allclose(added.at(name), averaged.at(name), 1e-4, 1e-5)) << name;
  }
}

// Looks at the copies of all variables after every step.
class CompareReplicas final : public Callback {
 public:
  explicit CompareReplicas(int* compared) : compared_(compared) {}
  void trigger_step() override {
    for (const Variable& variable : graph().variables().all()) {
      if (variable.role == VariableRole::kModel) continue;  // kept by the first tower alone
      for (const Variable* replica : variable.replicas) {
        EXPECT_TRUE(at::equal(variable.tensor, replica->tensor))
            << replica->name << " in step " << local_step();
        ++*compared_;
      }
    }
  }

 private:
  int* compared_;
};

at::Tensor with_dropout(const at::Tensor& image) { return mlp(Dropout("dropout", image)); }

TEST(TrainersTest, ReplicasAreBitwiseEqualAfterEveryStep) {
  for (const auto& logits : {with_dropout, lenet_with_batch_norm}) {
    int compared = 0;
    train(replicated(3), cost_of(logits), {.optimizer = [] { return Adam({.lr = 1e-2}); }},
          {CompareReplicas(&compared)});
    EXPECT_GT(compared, 50 * 2 * 4);
  }
}

TEST(TrainersTest, TheSameRunTwiceGivesTheSameBitsDropoutIncluded) {
  const TowerFunc cost = cost_of(with_dropout);
  expect_equal(train(replicated(2), cost), train(replicated(2), cost));
  expect_equal(train(parameter_server(2), cost), train(parameter_server(2), cost));
}

TEST(TrainersTest, TowersWithDropoutDrawDifferentMasks) {
  std::vector<at::Tensor> masks;
  SyncMultiGPUTrainerReplicated trainer = replicated(2);
  trainer.setup_graph(image_inputs(), QueueInput(images(4)), cost_of([](const at::Tensor& image) {
                        const at::Tensor ones = at::ones({64});
                        named("mask", Dropout("dropout", ones));
                        return mlp(image);
                      }),
                      SGD({.lr = 0.1}));
  Session session(trainer.graph());
  for (const Op& op : trainer.train_op().state().members) {
    masks.push_back(session.run(op, {"mask"})[0]);
  }
  EXPECT_FALSE(at::equal(masks[0], masks[1]));
}

TEST(TrainersTest, AsyncConverges) {
  const auto cost_after = [](int64_t steps) {
    AsyncMultiGPUTrainer trainer(Devices::cpu(2), {.graph = kSeeded});
    // With 0.01 Adam wanders: after 600 steps the cost was anything from 0.1 to 1.
    trainer.setup_graph(image_inputs(), QueueInput(images(8)), cost_of(mlp), Adam({.lr = 0.003}));
    trainer.train({.steps_per_epoch = steps, .max_epoch = 1});
    const DataPoint batch = *images(64)->next();
    const Feeds feeds = {{"image", batch[0]}, {"label", batch[1]}};
    return trainer.sess().run(trainer.train_op(), {"cost"}, feeds)[0].item<double>();
  };
  EXPECT_LT(cost_after(600), cost_after(0) / 2);
}

TEST(TrainersTest, EveryAsyncTowerUpdatesTheVariablesTheyShare) {
  AsyncMultiGPUTrainer trainer(Devices::cpu(3), {.graph = kSeeded});
  trainer.setup_graph(image_inputs(), QueueInput(images(4)), cost_of(mlp), Adam({.lr = 0.01}));
  trainer.train({.steps_per_epoch = 10, .max_epoch = 1});
  EXPECT_EQ(trainer.variables().at("Adam/step").tensor.item<double>(), 30);
}

TEST(TrainersTest, TheGraphOfAParameterServerHasOneSetOfVariables) {
  const Values one = train(one_tower(), cost_of(mlp), {.steps = 1});
  SyncMultiGPUTrainer trainer(Devices::cpu(3));
  trainer.setup_graph(image_inputs(), QueueInput(images(4)), cost_of(mlp), SGD({.lr = 0.1}));
  EXPECT_EQ(trainer.variables().size(), one.size());
}

TEST(TrainersTest, EachTowerTakesABatchOfItsOwn) {
  SyncMultiGPUTrainerReplicated trainer = replicated(2);
  auto input = std::make_unique<QueueInput>(images(4));
  const QueueInput& source = *input;
  trainer.setup_graph(image_inputs(), std::move(input), cost_of(mlp), SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 5, .max_epoch = 2});
  EXPECT_EQ(source.position(), 2 * 5 * 2);
  EXPECT_EQ(trainer.global_step(), 10);
}

TEST(TrainersTest, AStepWithAccumulatedGradientsEqualsOneOfALargerBatch) {
  const auto accumulated = [] {
    return AccumGradOptimizer(SGD({.lr = 0.05}), 4, {.average = true});
  };
  const Values two = train(replicated(2), cost_of(mlp), {2, 40, accumulated});
  const Values one = train(one_tower(), cost_of(mlp), {16, 10, [] { return SGD({.lr = 0.05}); }});
  for (const char* name : {"fc0/W", "fc1/W"}) {
    EXPECT_TRUE(at::allclose(two.at(name), one.at(name), 1e-4, 1e-5)) << name;
  }
}

// The statistics of batch norm are the first tower's, until they are given to the others.
TEST(TrainersTest, MovingAveragesAreMadeEqualAtTheEndOfAnEpoch) {
  SyncMultiGPUTrainerReplicated trainer = replicated(2);
  trainer.setup_graph(image_inputs(), QueueInput(images(4)),
                      cost_of([](const at::Tensor& image) { return mlp(BatchNorm("bn", image)); }),
                      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 5, .max_epoch = 1});
  const at::Tensor mean = trainer.variables().at("bn/mean/EMA").tensor;
  EXPECT_NE(mean.item<float>(), 0);
  EXPECT_TRUE(at::equal(mean, trainer.variables().at("tower1/bn/mean/EMA").tensor));
}

// Two costs, in one run, on two towers.
class TwoCostTrainer final : public TowerTrainer {
 public:
  explicit TwoCostTrainer(DataParallel parallel) : TowerTrainer(std::move(parallel), kSeeded) {
    setup_tower(image_inputs(), QueueInput(images(parallel_batch())),
                [](const at::Tensor& image, const at::Tensor& label) {
                  const at::Tensor fake = [&] {
                    const VariableScope scope("gen");
                    return FullyConnected("fc", image, {.units = 144, .activation = at::sigmoid});
                  }();
                  const VariableScope scope("discrim", Reuse::kAuto);
                  const at::Tensor real = FullyConnected("fc", image.flatten(1), {.units = 3});
                  const at::Tensor other = FullyConnected("fc", fake, {.units = 3});
                  named("d_loss", at::cross_entropy_loss(real, label));
                  return named("g_loss", at::cross_entropy_loss(other, label));
                });
    set_train_op(
        define("train_op", [g_adam = std::make_shared<Adam>(AdamOptions{.lr = 1e-3, .scope = "g"}),
                            d_adam = std::make_shared<Adam>(AdamOptions{.lr = 1e-3, .scope = "d"})](
                               TowerContext& tower) {
          const Gradients g =
              compute_gradients(tower.tensor("discrim/g_loss"), tower.trainable("^gen/"));
          const Gradients d =
              compute_gradients(tower.tensor("discrim/d_loss"), tower.trainable("^discrim/"));
          at::NoGradGuard no_grad;
          g_adam->apply_gradients(g);
          d_adam->apply_gradients(d);
        }));
  }
  Values train_some() {
    train({.steps_per_epoch = 50, .max_epoch = 1});
    return values_of(graph());
  }

 private:
  int64_t parallel_batch() const { return 8 / static_cast<int64_t>(parallel().devices.size()); }
};

TEST(TrainersTest, ATrainerOfOnesOwnRunsOnSeveralTowersUnchanged) {
  const Values one = TwoCostTrainer({}).train_some();
  expect_close(one, TwoCostTrainer({.devices = Devices::cpu(2)}).train_some(), 1e-3);
  expect_close(one,
               TwoCostTrainer({.devices = Devices::cpu(2), .mode = ParallelMode::kParameterServer})
                   .train_some(),
               1e-3);
}

TEST(TrainersTest, SmallBucketsGiveTheSameBitsAsLargeOnes) {
  const auto with_buckets = [](int64_t bytes) {
    class Trainer final : public SingleCostTrainer {
     public:
      using SingleCostTrainer::SingleCostTrainer;
    };
    return train(Trainer(DataParallel{.devices = Devices::cpu(2), .bucket_bytes = bytes}, kSeeded),
                 cost_of(lenet_with_batch_norm));
  };
  expect_equal(with_buckets(64), with_buckets(1 << 20));
}

// One tower and one device: for several there are other trainers.
static_assert(!std::is_constructible_v<SimpleTrainer, DataParallel>);
static_assert(!std::is_constructible_v<QueueInputTrainer, DataParallel>);

TEST(TrainersTest, WrongDevicesAreToldAtOnce) {
  EXPECT_ERROR(SyncMultiGPUTrainerReplicated(Devices::cpu(0)), "at least one tower");
  EXPECT_ERROR(Devices::first(0), "at least one device");
  EXPECT_ERROR(SyncMultiGPUTrainerReplicated({-1, 0}), "-1 is not the number of a GPU");
}

TEST(TrainersTest, AnErrorInOneTowerEndsTheTrainingWithItsName) {
  SyncMultiGPUTrainerReplicated trainer = replicated(2);
  auto calls = std::make_shared<std::atomic<int>>(0);
  trainer.setup_graph(image_inputs(), QueueInput(images(4)),
                      cost_of([calls](const at::Tensor& image) {
                        const bool is_second = get_current_tower_context().index() == 1;
                        TP_CHECK(!is_second || ++*calls < 3, "model", "it broke.");
                        return mlp(image);
                      }),
                      SGD({.lr = 0.1}));
  EXPECT_ERROR(
      trainer.train(
          {.session = {.executor = ExecutorKind::kEager}, .steps_per_epoch = 5, .max_epoch = 1}),
      "[run 'train_op/tower1'] [model] it broke.");
}

}  // namespace
}  // namespace tensorpack::test
