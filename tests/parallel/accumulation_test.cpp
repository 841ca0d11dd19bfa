// SPDX-License-Identifier: Apache-2.0
// Gradients that are summed up for some steps are exchanged once in so many.
#include <gmock/gmock.h>

#include "tensorpack/graph/decisions.h"
#include "tensorpack/parallel/rank_state.h"
#include "tensorpack/parallel/variable_sync.h"
#include "tensorpack/session/program_executor.h"
#include "tests/distributed/ranks.h"
#include "tests/parallel/towers.h"

namespace tensorpack::test {
namespace {

using namespace std::chrono_literals;  // NOLINT
using testing::Each;
using testing::IsEmpty;

constexpr int64_t kSteps = 3;  // that are summed up

Owned<Optimizer> accumulating() {
  return AccumGradOptimizer(Adam({.lr = 0.01, .epsilon = 1e-3}), kSteps, {.average = true});
}

// Counts, and gives back what it is given.
class Counting final : public Exchange {
 public:
  std::vector<at::Tensor> begin(int64_t, at::TensorList tensors) override {
    ++begun;
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
    return copies;
  }
  void end(int64_t, at::TensorList) override { ++ended; }

  int begun = 0;
  int ended = 0;
};

// What is done for a device that cannot choose: decides first, and keeps a program for each case,
// which was made while its exchanges were due, or were not.
class DecidingRunner final : public ProgramRunner {
 public:
  DecidingRunner(Trace trace, std::vector<std::string> fetches, size_t& variants)
      : trace_(std::move(trace)),
        decisions_(trace_),
        fetches_(std::move(fetches)),
        variants_(variants) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    const std::vector<bool> answers = decisions_.make();
    std::vector<at::Tensor> all = inputs;
    for (const bool answer : answers) all.push_back(at::scalar_tensor(answer, at::kBool));
    auto& program = programs_[answers];
    if (!program) program = std::make_unique<Program>(trace_, fetches_);
    variants_ = std::max(variants_, programs_.size());
    std::vector<at::Tensor> values = program->run(all);
    for (at::Tensor& value : values) value = value.clone();
    return values;
  }

 private:
  Trace trace_;
  Decisions decisions_;
  std::vector<std::string> fetches_;
  size_t& variants_;
  std::map<std::vector<bool>, std::unique_ptr<Program>> programs_;
};

class DecidingLowering final : public Lowering {
 public:
  explicit DecidingLowering(size_t& variants) : variants_(variants) {}
  std::unique_ptr<ProgramRunner> make_runner(
      const Op&, const Trace& trace, const std::vector<std::string>& fetches) const override {
    return std::make_unique<DecidingRunner>(trace, fetches, variants_);
  }

 private:
  size_t& variants_;
};

// One tower of several, run by hand.
class Tower {
 public:
  explicit Tower(bool decides_first) {
    const std::shared_ptr<Optimizer> optimizer = accumulating().share();
    op_ = define_tower(
              graph_, {.exchanges = true, .bucket_bytes = 1},
              {.op_name = "step",
               .inputs = image_inputs(),
               .function = cost_of(mlp),
               .body =
                   [optimizer](TowerContext& tower) { minimize(*optimizer, tower.outputs()[0]); }})
              .op();
    executor_ = std::make_unique<ProgramExecutor>(
        graph_, ExecutorOptions{},
        decides_first ? std::make_unique<DecidingLowering>(variants_)
                      : std::make_unique<Lowering>());
  }

  // Steps first to last - 1 of a training.
  void run(int first, int last) {
    const ExchangeScope bound(&exchange);
    const DataFlowPtr data = images(4);
    for (int i = 0; i < last; ++i) {
      const DataPoint batch = *data->next();
      if (i >= first) executor_->run(op_, {batch[0], batch[1]}, {});
    }
  }

  Graph& graph() { return graph_; }
  size_t variants() const { return variants_; }

  Counting exchange;

 private:
  Graph graph_{{.seed = 7}};
  Op op_;
  size_t variants_ = 0;
  std::unique_ptr<ProgramExecutor> executor_;
};

constexpr int kBuckets = 4;  // weights and biases of two layers

class AccumulationTest : public testing::TestWithParam<bool> {};

TEST_P(AccumulationTest, ExchangesOnceInSoManySteps) {
  Tower tower(GetParam());
  tower.run(0, 11);
  EXPECT_EQ(tower.exchange.begun, 11 / kSteps * kBuckets);
  EXPECT_EQ(tower.exchange.ended, 11 / kSteps * kBuckets);
  EXPECT_EQ(tower.variants(), GetParam() ? 2U : 0U);
}

TEST_P(AccumulationTest, GoesOnInTheMiddleOfAnAccumulation) {
  Tower whole(GetParam());
  whole.run(0, 11);
  Tower first(GetParam());
  first.run(0, 4);
  Tower second(GetParam());
  second.run(0, 1);  // has counted something else
  for (const Variable& variable : first.graph().variables().all()) {
    second.graph().variables().at(variable.name).assign(variable.tensor);
  }
  second.run(4, 11);
  EXPECT_EQ(first.exchange.begun, 1 * kBuckets);
  EXPECT_EQ(second.exchange.begun, 2 * kBuckets);
  expect_equal(values_of(whole.graph()), values_of(second.graph()));
}

INSTANTIATE_TEST_SUITE_P(Lowerings, AccumulationTest, testing::Bool(), [](const auto& info) {
  return info.param ? "DecidesFirst" : "DecidesOnTheWay";
});

TEST(AccumulationTest, DecidingFirstChangesNoBits) {
  Tower one(/*decides_first=*/false);
  Tower other(/*decides_first=*/true);
  one.run(0, 10);
  other.run(0, 10);
  expect_equal(values_of(one.graph()), values_of(other.graph()));
}

// ---- sums that towers and ranks have each for themselves

const GraphOptions kSeeded{.seed = 7};

// Three epochs, the first two of which end in the middle of an accumulation.
Values train_epochs(SingleCostTrainer&& trainer, DataFlowPtr data) {
  trainer.setup_graph(image_inputs(), QueueInput(std::move(data)), cost_of(mlp), accumulating());
  trainer.train({.steps_per_epoch = 4, .max_epoch = 3});
  return values_of(trainer.graph());
}

Values train_on_large_batches() {
  SimpleTrainer trainer(kSeeded);
  trainer.setup_graph(image_inputs(), QueueInput(images(4 * 2 * kSteps, 96)), cost_of(mlp),
                      Adam({.lr = 0.01, .epsilon = 1e-3}));
  trainer.train({.steps_per_epoch = 4, .max_epoch = 1});
  return values_of(trainer.graph());
}

void expect_same_weights(const Values& a, const Values& b) {
  for (const char* name : {"fc0/W", "fc0/b", "fc1/W", "fc1/b"}) {
    EXPECT_TRUE(at::allclose(a.at(name), b.at(name), 1e-4, 1e-5)) << name;
  }
}

TEST(AccumulationTest, TheEndOfAnEpochLosesNoGradientsOfOtherTowers) {
  expect_same_weights(
      train_on_large_batches(),
      train_epochs(SyncMultiGPUTrainerReplicated(Devices::cpu(2), {.graph = kSeeded}),
                   images(4, 96)));
}

TEST(AccumulationTest, TheEndOfAnEpochLosesNoGradientsOfOtherProcesses) {
  std::vector<Values> values(2);
  const auto errors = run_ranks(2, 10s, [&](const std::shared_ptr<ProcessGroup>& group) {
    std::vector<DataPoint> points;
    const DataFlowPtr all = images(4, 96);
    for (int i = 0; auto point = all->next(); ++i) {
      if (i % 2 == group->rank()) points.push_back(*point);
    }
    values[static_cast<size_t>(group->rank())] = train_epochs(
        DistributedTrainer({.devices = Devices::cpu(1), .processes = group, .graph = kSeeded}),
        std::make_unique<FromList>(std::move(points)));
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
  expect_same_weights(train_on_large_batches(), values[0]);
  expect_same_weights(values[0], values[1]);
}

// ---- messages

// A group that nobody else is in, and that counts.
class CountingGroup final : public ProcessGroup {
 public:
  CountingGroup() : ProcessGroup({.environment = place_of(0, 2, 1)}) {}
  std::unique_ptr<Work> all_reduce(const at::Tensor&) override { return nullptr; }
  void broadcast(const at::Tensor& tensor, int) override {
    ++broadcasts;
    if (changes) tensor.data().add_(1);  // the others' values, of which libtorch does not know
  }
  std::vector<std::string> all_gather(const std::string& bytes) override {
    ++gathers;
    return {bytes};
  }
  void barrier() override {}
  void check() override {}
  void check_after(std::chrono::milliseconds) override {}
  void share_signal(int) override {}
  int agreed_signal(int64_t) override { return 0; }
  bool ends_here() const override { return false; }
  void set_step(int64_t) override {}
  void leave(const std::string&) override {}
  void stop(const std::string&) override {}

  bool changes = true;
  int broadcasts = 0;
  int gathers = 0;
};

TEST(VariableSyncTest, VariablesOfOneTypeAreBroadcastTogether) {
  Graph graph;
  for (int i = 0; i < 20; ++i) {
    graph.create_variable("w" + std::to_string(i), {i, 2}, {}, c10::kCPU);
    graph.create_variable("n" + std::to_string(i), {},
                          {.role = VariableRole::kGlobal, .dtype = at::kLong}, c10::kCPU);
  }
  graph.create_variable("conv", {2, 3, 4, 5}, {.channels_last = true}, c10::kCPU);
  Values before;
  for (const Variable& v : graph.variables().all()) before.emplace(v.name, v.tensor.clone());
  CountingGroup group;
  broadcast_variables(graph, graph.variables().size(), group);
  EXPECT_EQ(group.broadcasts, 2);
  for (const auto& [name, value] : before) {
    EXPECT_TRUE(at::equal(graph.variables().at(name).tensor, value + 1)) << name;
  }
}

// All-gathered, it would be as many times as large.
TEST(RankStateTest, WhatTheChiefHasIsBroadcast) {
  CountingGroup group;
  group.changes = false;
  const StateTexts states = {{"callback/A", std::string(1000, 'a')}, {"empty", ""}};
  EXPECT_EQ(share_of_chief(states, group), states);
  EXPECT_EQ(group.broadcasts, 2);
  EXPECT_EQ(group.gathers, 0);
}

TEST(RankStateTest, AllRanksHaveWhatTheChiefHas) {
  const StateTexts states = {{"generator", std::string(100'000, '\x1f')}};
  const auto errors = run_ranks(3, 10s, [&](const std::shared_ptr<ProcessGroup>& group) {
    const StateTexts own = {{"rank", std::to_string(group->rank())}};
    EXPECT_EQ(share_of_chief(group->is_chief() ? states : own, *group), states);
    EXPECT_EQ(share_of_chief(group->is_chief() ? StateTexts() : own, *group), StateTexts());
  });
  EXPECT_THAT(errors, Each(IsEmpty()));
}

// See Note [Kept copies].
TEST(VariableSyncTest, BroadcastsAreWritesThatAreCounted) {
  for (const int variables : {1, 3}) {
    Graph graph;
    for (int i = 0; i < variables; ++i) {
      graph.create_variable("w" + std::to_string(i), {4}, {}, c10::kCPU);
    }
    const at::Tensor& last = graph.variables().all().back().tensor;
    const auto before = last._version();
    CountingGroup group;
    broadcast_variables(graph, graph.variables().size(), group);
    EXPECT_GT(last._version(), before) << variables;
  }
}

}  // namespace
}  // namespace tensorpack::test
