// SPDX-License-Identifier: Apache-2.0
// Several processes give the numbers of one. Here they are threads, each with a trainer of its own,
// that talk over the loopback as processes do; tests/train has real ones.
#include <gmock/gmock.h>

#include <filesystem>
#include <mutex>

#include "tests/distributed/ranks.h"
#include "tests/parallel/towers.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using namespace std::chrono_literals;  // NOLINT
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

DistributedOptions with(std::shared_ptr<ProcessGroup> group, int towers = 1) {
  return {.devices = Devices::cpu(towers), .processes = std::move(group), .graph = kSeeded};
}

// Part `rank` of `size` of the batches, in the order in which that many towers would take them.
DataFlowPtr images_of(const ProcessGroup& group, int64_t batch_size, int towers = 1) {
  std::vector<DataPoint> points;
  const DataFlowPtr all = images(batch_size);
  for (int64_t i = 0; auto point = all->next(); ++i) {
    if (i / towers % group.size() == group.rank()) points.push_back(*point);
  }
  return std::make_unique<FromList>(std::move(points));
}

struct Ranks {
  explicit Ranks(int size) : values(static_cast<size_t>(size)) {}

  // Runs `train` as each rank and keeps what it returns.
  void run(const std::function<Values(std::shared_ptr<ProcessGroup>)>& train) {
    errors = run_ranks(static_cast<int>(values.size()), 10s, [&](const auto& group) {
      values[static_cast<size_t>(group->rank())] = train(group);
    });
  }

  std::vector<Values> values;
  std::vector<std::string> errors = {};
};

Values train_rank(SingleCostTrainer&& trainer, DataFlowPtr data, const TowerFunc& cost,
                  int64_t steps = 30, OwnedList<Callback> callbacks = {},
                  Owned<SessionInit> init = {}) {
  trainer.setup_graph(image_inputs(), QueueInput(std::move(data)), cost,
                      Adam({.lr = 1e-3, .epsilon = 1e-3}));
  trainer.train({.callbacks = std::move(callbacks),
                 .session_init = std::move(init),
                 .steps_per_epoch = steps,
                 .max_epoch = 1});
  return values_of(trainer.graph());
}

Values train_alone(int64_t batch_size, const TowerFunc& cost) {
  return train_rank(SimpleTrainer(kSeeded), images(batch_size), cost);
}

// Calls a function after every step, in every process or the chief's alone.
class AfterStep final : public Callback {
 public:
  AfterStep(bool chief_only, std::function<void(int64_t step)> function)
      : function_(std::move(function)) {
    set_chief_only(chief_only);
  }
  void trigger_step() override { function_(global_step()); }

 private:
  std::function<void(int64_t step)> function_;
};

TEST(ProcessesTest, SeveralRanksEqualOneProcessWithTheWholeBatch) {
  for (const auto& logits : {mlp, lenet_with_batch_norm}) {
    Ranks ranks(2);
    ranks.run([&](auto group) {
      return train_rank(DistributedTrainer(with(group)), images_of(*group, 4), cost_of(logits));
    });
    EXPECT_THAT(ranks.errors, Each(IsEmpty()));
    expect_equal(ranks.values[0], ranks.values[1]);
    expect_close(ranks.values[0], train_alone(8, cost_of(logits)), 2e-4);
  }
}

TEST(ProcessesTest, TowersAndRanksCombine) {
  Ranks ranks(2);
  ranks.run([&](auto group) {
    return train_rank(DistributedTrainer(with(group, 2)), images_of(*group, 2, 2), cost_of(mlp));
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  expect_equal(ranks.values[0], ranks.values[1]);
  expect_close(ranks.values[0], train_alone(8, cost_of(mlp)), 1e-4);
}

// One rank has more shapes than are recorded, the other one shape.
Values train_on_many_shapes(const std::shared_ptr<ProcessGroup>& group, ExecutorKind executor) {
  constexpr int64_t kBatches = 140;  // by turns for one of two towers
  std::vector<DataPoint> points;
  for (int64_t i = 1; i <= kBatches; ++i) {
    points.push_back(images(group->rank() == 0 ? i : 2, /*count=*/kBatches)->next().value());
  }
  DistributedTrainer trainer(with(group, 2));
  trainer.setup_graph(image_inputs(), QueueInput(FromList(std::move(points))),
                      cost_of(lenet_with_batch_norm), Adam({.lr = 1e-3, .epsilon = 1e-3}));
  trainer.train({.session = {.executor = executor, .verify = false},
                 .steps_per_epoch = kBatches / 2,
                 .max_epoch = 1});
  return values_of(trainer.graph());
}

TEST(ProcessesTest, ARankThatRunsEagerlyAfterManyShapesTrainsWithOneThatDoesNot) {
  Ranks eager(2), recorded(2);
  eager.run([](auto group) { return train_on_many_shapes(group, ExecutorKind::kEager); });
  const std::string log = stdout_of([&] {
    recorded.run([](auto group) { return train_on_many_shapes(group, ExecutorKind::kDefault); });
  });
  EXPECT_THAT(recorded.errors, Each(IsEmpty()));
  EXPECT_THAT(log, HasSubstr("From now on it runs eagerly on other shapes"));
  expect_equal(recorded.values[0], recorded.values[1]);
  expect_close(recorded.values[0], eager.values[0], 2e-4);
}

TEST(ProcessesTest, CompressedGradientsAreNearlyTheSame) {
  for (const Compression compression : {Compression::kFloat16, Compression::kBFloat16}) {
    Ranks ranks(2);
    ranks.run([&](auto group) {
      DistributedOptions options = with(group);
      options.compression = compression;
      return train_rank(DistributedTrainer(options), images_of(*group, 4), cost_of(mlp));
    });
    EXPECT_THAT(ranks.errors, Each(IsEmpty()));
    expect_equal(ranks.values[0], ranks.values[1]);
    const Values alone = train_alone(8, cost_of(mlp));
    EXPECT_TRUE(at::allclose(ranks.values[0].at("fc1/W"), alone.at("fc1/W"), 0.1, 0.02));
    EXPECT_FALSE(at::equal(ranks.values[0].at("fc1/W"), alone.at("fc1/W")));
  }
}

TEST(ProcessesTest, TheChiefsFirstValuesAndWhatItRestoresReachAll) {
  Ranks ranks(2);
  ranks.run([&](auto group) {
    DistributedOptions options = with(group);
    options.graph.seed = 100 + group->rank();
    Owned<SessionInit> init;
    if (group->is_chief()) init = DictRestore(NamedTensors{{"fc1/b", at::full({3}, 5.F)}});
    return train_rank(DistributedTrainer(options), images_of(*group, 4), cost_of(mlp), 0, {},
                      std::move(init));
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  expect_equal(ranks.values[0], ranks.values[1]);
  EXPECT_TRUE(at::equal(ranks.values[1].at("fc1/b"), at::full({3}, 5.F)));
}

TEST(ProcessesTest, DifferentModelsAreAnErrorBeforeTheFirstStepThatShowsTheDifference) {
  Ranks ranks(2);
  ranks.run([&](auto group) {
    const int64_t units = group->is_chief() ? 4 : 5;
    return train_rank(DistributedTrainer(with(group)), images_of(*group, 4),
                      cost_of([units](const at::Tensor& image) {
                        const at::Tensor l = FullyConnected("fc0", image, {.units = units});
                        return FullyConnected("fc1", l, {.units = 3});
                      }));
  });
  EXPECT_THAT(ranks.errors, Each(AllOf(HasSubstr("different variables"),
                                       HasSubstr("rank 0 has 'variable 'fc0/W' [4, 144] Float'"),
                                       HasSubstr("rank 1 has 'variable 'fc0/W' [5, 144] Float'"))));
}

TEST(ProcessesTest, DifferentOperatorsAreAnErrorBeforeTheFirstStep) {
  Ranks ranks(2);
  ranks.run([&](auto group) {
    const bool is_chief = group->is_chief();
    return train_rank(DistributedTrainer(with(group)), images_of(*group, 4),
                      cost_of([is_chief](const at::Tensor& image) {
                        return mlp(is_chief ? at::relu(image) : at::tanh(image));
                      }));
  });
  EXPECT_THAT(ranks.errors, Each(AllOf(HasSubstr("different operators"), HasSubstr("aten::relu"))));
}

// What ranks that build different models say: `logits` is given the rank.
std::vector<std::string> errors_of(
    const std::function<at::Tensor(int rank, const at::Tensor& image)>& logits) {
  Ranks ranks(2);
  ranks.run([&](auto group) {
    return train_rank(
        DistributedTrainer(with(group)), images_of(*group, 4),
        cost_of([&, rank = group->rank()](const at::Tensor& image) { return logits(rank, image); }),
        /*steps=*/2);
  });
  return ranks.errors;
}

TEST(ProcessesTest, DifferentNumbersAreAnErrorBeforeTheFirstStepThatShowsThem) {
  // libtorch makes a tensor of it.
  EXPECT_THAT(errors_of([](int rank, const at::Tensor& image) {
                return mlp(image) * (rank == 0 ? 0.2 : 0.25);
              }),
              Each(AllOf(HasSubstr("different operators"), HasSubstr(", 0.2) -> "),
                         HasSubstr(", 0.25) -> "))));
  EXPECT_THAT(errors_of([](int rank, const at::Tensor& image) {
                return mlp(Dropout("drop", image, {.rate = rank == 0 ? 0.2 : 0.6}));
              }),
              Each(AllOf(HasSubstr("in 'drop'"), HasSubstr("0.8"), HasSubstr("0.4"))));
  EXPECT_THAT(errors_of([](int rank, const at::Tensor& image) {
                return mlp(image.clamp(rank == 0 ? 0 : 0.5, 2));
              }),
              Each(AllOf(HasSubstr("aten::clamp($image, 0, 2)"),
                         HasSubstr("aten::clamp($image, 0.5, 2)"))));
  EXPECT_THAT(errors_of([](int rank, const at::Tensor& image) {
                return mlp(image) * at::tensor({1.F, 1.F, rank == 0 ? 1.F : 2.F});
              }),
              Each(HasSubstr("constant [3] with checksum")));
}

TEST(ProcessesTest, DifferentArgumentsAreAnErrorBeforeTheFirstStep) {
  EXPECT_THAT(errors_of([](int rank, const at::Tensor& image) {
                const at::Tensor a = mlp(image);
                const at::Tensor b = at::tanh(a);
                return rank == 0 ? a - b : b - a;
              }),
              Each(HasSubstr("different operators")));
}

TEST(ProcessesTest, WhatTheChiefAddsAndWhatIsDataDoNotCount) {
  Ranks ranks(2);
  ranks.run([](auto group) {
    const at::Tensor table = at::full({1000}, group->rank(), at::kFloat);
    DistributedTrainer trainer(with(group));
    trainer.setup_graph(image_inputs(), QueueInput(images_of(*group, 4)),
                        cost_of([table](const at::Tensor& image) {
                          const at::Tensor logits = mlp(image);
                          add_moving_summary("logits", logits.mean());
                          return logits + table.mean();
                        }),
                        SGD({.lr = 0.1}));
    trainer.train({.callbacks = {MergeAllSummaries()}, .steps_per_epoch = 2, .max_epoch = 1});
    return values_of(trainer.graph());
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
}

TEST(ProcessesTest, DifferentStepsPerEpochAreAnErrorBeforeTheFirstStep) {
  Ranks ranks(3);
  ranks.run([&](auto group) {
    return train_rank(DistributedTrainer(with(group)), images_of(*group, 4), cost_of(mlp),
                      group->rank() == 2 ? 11 : 10);
  });
  EXPECT_THAT(ranks.errors, Each(HasSubstr("rank 0 has 'steps_per_epoch = 10' where rank 2 has "
                                           "'steps_per_epoch = 11'")));
}

TEST(ProcessesTest, WhoseDataEndsFirstIsNamedByTheOthers) {
  Ranks ranks(2);
  ranks.run([&](auto group) {
    DistributedTrainer trainer(with(group));
    DataFlowPtr data = images_of(*group, 4) | take(group->is_chief() ? 8 : 5);
    trainer.setup_graph(image_inputs(), QueueInput(std::move(data), {.infinite = false}),
                        cost_of(mlp), SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 8, .max_epoch = 1});
    return Values();
  });
  EXPECT_THAT(ranks.errors[0],
              AllOf(HasSubstr("rank 1 left at step 5"), HasSubstr("its data has ended")));
  EXPECT_THAT(ranks.errors[1], IsEmpty());
}

TEST(ProcessesTest, WhenTheChiefStopsTheTrainingAllEndNormally) {
  Ranks ranks(2);
  std::atomic<int64_t> last_step = 0;
  ranks.run([&](auto group) {
    DistributedTrainer trainer(with(group));
    trainer.setup_graph(image_inputs(), QueueInput(images_of(*group, 4)), cost_of(mlp),
                        SGD({.lr = 0.1}));
    AfterStep stop(/*chief_only=*/true, [](int64_t step) {
      if (step == 7) throw StopTraining("enough.");
    });
    trainer.train({.callbacks = {std::move(stop)}, .steps_per_epoch = 20, .max_epoch = 1});
    if (!group->is_chief()) last_step = trainer.global_step();
    return values_of(trainer.graph());
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  EXPECT_EQ(last_step, 7);
  expect_equal(ranks.values[0], ranks.values[1]);
}

TEST(ProcessesTest, AnErrorInOneRankReachesTheOthersWithItsReasonAndStep) {
  Ranks ranks(3);
  ranks.run([&](auto group) {
    DistributedTrainer trainer(with(group));
    trainer.setup_graph(image_inputs(), QueueInput(images_of(*group, 4)), cost_of(mlp),
                        SGD({.lr = 0.1}));
    AfterStep fail(/*chief_only=*/false, [&group](int64_t step) {
      TP_CHECK(group->rank() != 1 || step < 4, "callback", "no more paper.");
    });
    trainer.train({.callbacks = {std::move(fail)}, .steps_per_epoch = 20, .max_epoch = 1});
    return Values();
  });
  EXPECT_THAT(ranks.errors[1], HasSubstr("no more paper"));
  for (const int rank : {0, 2}) {
    EXPECT_THAT(ranks.errors[static_cast<size_t>(rank)],
                AllOf(HasSubstr("rank 1 left at step"), HasSubstr("no more paper")));
  }
}

TEST(ProcessesTest, RanksThatBeginWithTheSameBatchAreWarnedOf) {
  const auto log_of = [](bool is_divided) {
    return stdout_of([&] {
      Ranks ranks(2);
      ranks.run([&](auto group) {
        return train_rank(DistributedTrainer(with(group)),
                          is_divided ? images_of(*group, 4) : images(4), cost_of(mlp), 2);
      });
    });
  };
  EXPECT_THAT(log_of(false), HasSubstr("All 2 processes begin with the same batch."));
  EXPECT_THAT(log_of(true), testing::Not(HasSubstr("same batch")));
}

TEST(ProcessesTest, InferenceOnAllProcessesSeesAllDataOnce) {
  Ranks ranks(3);
  std::mutex mutex;
  std::map<int, double> costs;
  ranks.run([&](auto group) {
    DistributedTrainer trainer(with(group));
    trainer.setup_graph(image_inputs(), QueueInput(images_of(*group, 4)), cost_of(mlp),
                        SGD({.lr = 0.1}));
    DataFlowPtr test = images(5, 35) | shard({.rank = group->rank(), .size = 3, .equal = false});
    auto look = CallbackFactory({.trigger = [&](Callback& self) {
      const std::lock_guard lock(mutex);
      costs[group->rank()] = self.trainer().monitors().get_latest("validation_cost");
    }});
    look.set_chief_only(false);
    trainer.train({.callbacks = {InferenceRunner(std::move(test), {ScalarStats({"cost"})},
                                                 {.on_all_processes = true}),
                                 std::move(look)},
                   .steps_per_epoch = 3,
                   .max_epoch = 1});
    return values_of(trainer.graph());
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  double expected = 0;
  {
    SimpleTrainer alone(kSeeded);
    alone.setup_graph(image_inputs(), QueueInput(images(5, 35)), cost_of(mlp), SGD({.lr = 0.1}));
    auto look = CallbackFactory({.trigger = [&](Callback& self) {
      expected = self.trainer().monitors().get_latest("validation_cost");
    }});
    alone.train(
        {.callbacks = {InferenceRunner(images(5, 35), {ScalarStats({"cost"})}), std::move(look)},
         .session_init = DictRestore(ranks.values[0]),
         .steps_per_epoch = 0,
         .max_epoch = 1});
  }
  ASSERT_EQ(costs.size(), 3U);
  for (const auto& [rank, cost] : costs) EXPECT_NEAR(cost, expected, 1e-5) << rank;
}

struct Validation {
  int ranks = 1;
  int towers = 1;
  int samples = 9;
  bool equal = false;      // the shares
  bool knows_size = true;  // the data
};

// What the ranks report of samples of which the last one is wrong, in batches of up to 4.
std::vector<std::string> validate(const Validation& setup, double* error, double* accuracy) {
  std::mutex mutex;
  return run_ranks(setup.ranks, 10s, [&](std::shared_ptr<ProcessGroup> group) {
    std::vector<DataPoint> points;
    for (int i = 1; i <= setup.samples; ++i) {
      points.push_back({at::full({}, i == setup.samples ? 1. : 0., at::kFloat)});
    }
    DataFlowPtr data = std::make_unique<FromList>(std::move(points));
    if (!setup.knows_size) {
      data = std::move(data) | filter([](const DataPoint&) { return true; });
    }
    data = std::move(data) |
           shard({.rank = group->rank(), .size = setup.ranks, .equal = setup.equal}) |
           batch(4, {.remainder = true});
    DistributedTrainer trainer(with(group));
    trainer.setup_graph(
        {{"x", {-1}}},
        QueueInput(FakeData({{}}, {.size = 8, .seed = uint64_t(group->rank())}) | batch(4)),
        [](const Tensor& x) {
          named("incorrect_vector", x);
          named("accuracy", 1 - x.mean());
          return named("cost", (get_variable("w", {}) * x).mean());
        },
        SGD({.lr = 0.1}));
    auto look = CallbackFactory({.trigger = [&](Callback& self) {
      const std::lock_guard lock(mutex);
      error[group->rank()] = self.trainer().monitors().get_latest("validation_error");
      accuracy[group->rank()] = self.trainer().monitors().get_latest("validation_accuracy");
    }});
    look.set_chief_only(false);
    trainer.train(
        {.callbacks = {InferenceRunner(
                           std::move(data), {ScalarStats({"accuracy"}), ClassificationError()},
                           {.devices = Devices::cpu(setup.towers), .on_all_processes = true}),
                       std::move(look)},
         .steps_per_epoch = 1,
         .max_epoch = 1});
  });
}

TEST(ProcessesTest, InferenceOnAllProcessesIsExactForUnevenBatches) {
  for (const int size : {1, 2, 3}) {
    for (const int towers : {1, 2}) {
      double error[3] = {}, accuracy[3] = {};
      EXPECT_THAT(validate({.ranks = size, .towers = towers}, error, accuracy), Each(IsEmpty()));
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_DOUBLE_EQ(error[rank], 1. / 9) << size << " ranks, " << towers << " towers";
        EXPECT_NEAR(accuracy[rank], 8. / 9, 1e-7) << size << " ranks, " << towers << " towers";
      }
    }
  }
}

TEST(ProcessesTest, ARankWithoutAShareReportsWhatTheOthersSaw) {
  double error[3] = {}, accuracy[3] = {};
  const std::string log = stdout_of(
      [&] { EXPECT_THAT(validate({.ranks = 3, .samples = 2}, error, accuracy), Each(IsEmpty())); });
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(error[rank], 0.5);
    EXPECT_EQ(accuracy[rank], 0.5);
  }
  EXPECT_THAT(log, testing::Not(HasSubstr("is empty")));
}

TEST(ProcessesTest, InferenceOnAllProcessesRefusesASharedPassThatLeavesSomethingOut) {
  for (const bool knows_size : {true, false}) {
    double error[2] = {-1, -1}, accuracy[2] = {-1, -1};
    std::vector<std::string> errors;
    const std::string log = stdout_of([&] {
      errors = validate({.ranks = 2, .equal = true, .knows_size = knows_size}, error, accuracy);
    });
    EXPECT_THAT(errors, Each(HasSubstr("shard() left 1 datapoint")));
    EXPECT_THAT(errors, Each(HasSubstr("{.equal = false}")));
    // Before the first step where the size of the data is known.
    EXPECT_EQ(log.find("Start epoch 1") == std::string::npos, knows_size);
    EXPECT_EQ(error[0], -1);
  }
  // What can be divided may be.
  double error[3] = {}, accuracy[3] = {};
  EXPECT_THAT(validate({.ranks = 3, .equal = true}, error, accuracy), Each(IsEmpty()));
  EXPECT_DOUBLE_EQ(error[2], 1. / 9);
}

}  // namespace
}  // namespace tensorpack::test
