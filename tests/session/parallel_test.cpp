// SPDX-License-Identifier: Apache-2.0
// Several towers in one step: the seam that trainers on several devices stand on.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>

#include "tensorpack/graph/exchange.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/define_tower.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using Tensors = std::vector<at::Tensor>;

// The average over the towers of a process, by hand: everybody brings a copy, waits for the others,
// and adds up in the order of the towers.
class AverageByHand final : public ExchangeGroup {
 public:
  explicit AverageByHand(size_t size) {
    for (size_t i = 0; i < size; ++i) members_.push_back(std::make_unique<Member>(*this, i));
  }

  Exchange& member(size_t index) override { return *members_[index]; }

  void start() override {
    brought_.clear();
    is_aborted_ = false;
  }

  void abort(size_t) override {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    changed_.notify_all();
  }

 private:
  struct Member final : Exchange {
    Member(AverageByHand& group, size_t index) : group(group), index(index) {}

    Tensors begin(int64_t key, at::TensorList tensors) override {
      Tensors copies;
      for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
      const std::lock_guard lock(group.mutex_);
      group.brought_[key][index] = copies;
      group.changed_.notify_all();
      Tensors averages;
      for (const at::Tensor& tensor : tensors) averages.push_back(at::empty_like(tensor));
      return averages;
    }

    void end(int64_t key, at::TensorList averages) override {
      const std::map<size_t, Tensors>& all = group.wait_for(key);
      for (size_t i = 0; i < averages.size(); ++i) {
        averages[i].zero_();
        for (const auto& [tower, tensors] : all) averages[i].add_(tensors[i]);
        averages[i].div_(static_cast<double>(all.size()));
      }
    }

    AverageByHand& group;
    size_t index;
  };

  const std::map<size_t, Tensors>& wait_for(int64_t key) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_aborted_ || brought_[key].size() == members_.size(); });
    TP_CHECK(!is_aborted_, "exchange", "another tower has failed.");
    return brought_[key];
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, std::map<size_t, Tensors>> brought_;  // by key and tower
  bool is_aborted_ = false;
  std::vector<std::unique_ptr<Member>> members_;
};

at::Tensor regression_cost(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor prediction = FullyConnected(
      "fc1", FullyConnected("fc0", x, {.units = 8, .activation = at::tanh}), {.units = 1});
  return named("cost", (prediction.squeeze(1) - y).square().mean());
}

// Rows `begin` to `end` of a batch of 16.
Tensors rows(int step, int64_t begin, int64_t end) {
  const at::Tensor x = at::sin(at::arange(16 * 4).to(at::kFloat).reshape({16, 4}) + step);
  return {x.slice(0, begin, end), x.sum(1).slice(0, begin, end)};
}

struct Training {
  explicit Training(int towers, const TowerFunc& function = regression_cost) {
    const auto adam = std::make_shared<Adam>(AdamOptions{.lr = 0.01});
    const int64_t share = 16 / towers;
    std::vector<Op> ops;
    for (int i = 0; i < towers; ++i) {
      const std::string name = "tower" + std::to_string(i);
      ops.push_back(
          define_tower(graph,
                       {.name = name,
                        .index = i,
                        .total = towers,
                        .variable_prefix = i == 0 ? "" : name + "/",
                        .exchanges = towers > 1},
                       {.inputs = {{"x", {-1, 4}}, {"y", {-1}}},
                        .function = function,
                        .body = [adam](TowerContext& t) { minimize(*adam, t.outputs()[0]); },
                        .feeder = [this, i, share] { return batch(i, share); }})
              .op());
    }
    op = Op::parallel("step", ops, std::make_shared<AverageByHand>(towers));
    graph.finalize();
  }

  std::optional<Tensors> batch(int tower, int64_t share) {
    if (tower == 1 && ends_in_second_tower) return std::nullopt;
    return rows(step, tower * share, (tower + 1) * share);
  }

  void run(Session& session, int steps) {
    for (int i = 0; i < steps; ++i, ++step) session.run(op, {"cost"});
  }

  at::Tensor value(const std::string& name) { return graph.variables().at(name).tensor.detach(); }

  Graph graph{GraphOptions{.seed = 3}};
  Op op;
  int step = 0;
  bool ends_in_second_tower = false;
};

TEST(ParallelTest, TwoTowersWithHalfTheBatchEqualOneWithAllOfIt) {
  Training two(2), one(1);
  Session two_session(two.graph), one_session(one.graph);
  two.run(two_session, 50);
  one.run(one_session, 50);
  for (const Variable* variable : one.graph.variables().trainable()) {
    EXPECT_TRUE(at::allclose(two.value(variable->name), variable->tensor.detach(), 1e-4, 1e-5))
        << variable->name;
  }
}

TEST(ParallelTest, ReplicasStayBitwiseEqual) {
  Training training(2);
  EXPECT_EQ(training.graph.variables().trainable().size(), 4U) << "without replicas";
  Session session(training.graph);
  for (int step = 0; step < 10; ++step) {
    for (const Variable& variable : training.graph.variables().all()) {
      if (!variable.is_replica()) continue;
      EXPECT_FALSE(variable.is_saved()) << variable.name;
      EXPECT_TRUE(at::equal(variable.tensor, training.value(variable.tower_free_name())))
          << variable.name << " before step " << step;
    }
    training.run(session, 1);
  }
  EXPECT_EQ(training.value("tower1/Adam/step").item<double>(), 10);
}

TEST(ParallelTest, FetchesAreTheFirstTowersAndFeedsGoToAll) {
  Training training(2);
  Session session(training.graph);
  const Tensors batch = rows(0, 0, 16);
  const FetchedValues values =
      session.run(training.op, {"x", "cost"}, {{"x", batch[0]}, {"y", batch[1]}});
  EXPECT_TRUE(at::equal(values[0], batch[0]));
  EXPECT_EQ(values[1].dim(), 0);
}

at::Tensor with_dropout(const at::Tensor& x, const at::Tensor& y) {
  return named(
      "cost",
      (Dropout("drop", x).sum(1) * get_variable("w", {1}, init::ones()) - y).square().mean());
}

TEST(ParallelTest, TheSameRunTwiceGivesTheSameBitsWithDropout) {
  const auto train = [] {
    Training training(2, with_dropout);
    Session session(training.graph);
    training.run(session, 30);
    return training.value("w").clone();
  };
  EXPECT_TRUE(at::equal(train(), train()));
}

TEST(ParallelTest, TowersDrawDifferentNumbers) {
  Training training(2, with_dropout);
  const auto& generators = training.graph.generators();
  EXPECT_FALSE(
      at::equal(generators.at("main/cpu").get_state(), generators.at("tower1/cpu").get_state()));
}

TEST(ParallelTest, ABatchGoesBackWhenThatOfAnotherTowerDoesNotCome) {
  Training training(2);
  Session session(training.graph);
  training.run(session, 1);
  training.ends_in_second_tower = true;
  const InputFeeder& first = training.op.state().members[0].state().feeder;
  EXPECT_THROW(session.run(training.op), EndOfData);
  EXPECT_EQ(first.batches_put_back(), 1);
  EXPECT_EQ(session.runs_with_source(), 1);
  ++training.step;
  EXPECT_TRUE(at::equal(first.next()->at(0), rows(1, 0, 8)[0])) << "not that of the second step";
}

TEST(ParallelTest, AnExceptionInOneReachesTheCallerWithItsNameAndEndsTheOthers) {
  std::atomic<int> calls = 0;
  Training training(2, [&calls](const at::Tensor& x, const at::Tensor& y) {
    TP_CHECK(calls < 4 || get_current_tower_context().index() == 0, "model", "it broke.");
    ++calls;
    return regression_cost(x, y);
  });
  Session session(training.graph, {.executor = ExecutorKind::kEager});
  training.run(session, 1);  // two calls to build, two to run
  EXPECT_ERROR(training.run(session, 1), "[run 'tower1'] [model] it broke.");
}

// As a prediction does. The second tower runs on a thread of its own, for a step that holds the
// lock.
TEST(ParallelTest, AnEagerTowerThatLocksItsOwnGraphIsAnErrorAndDoesNotHang) {
  Graph* asked = nullptr;
  Training training(2, [&](const at::Tensor& x, const at::Tensor& y) {
    if (asked != nullptr) asked->lock_variables().unlock();
    return regression_cost(x, y);
  });
  Session session(training.graph, {.executor = ExecutorKind::kEager});
  asked = &training.graph;
  EXPECT_ERROR(training.run(session, 1),
               "[run 'tower1'] [graph] a function that runs in a step of several towers asks for "
               "the variables of its own graph");
}

TEST(ParallelTest, WhenOneTowerHasNoMoreDataNoneRuns) {
  Training training(2);
  Session session(training.graph);
  training.run(session, 1);
  const at::Tensor before = training.value("fc0/W").clone();
  training.ends_in_second_tower = true;
  EXPECT_THROW(training.run(session, 1), EndOfData);
  EXPECT_TRUE(at::equal(training.value("fc0/W"), before));
}

TEST(ParallelTest, AssigningAVariableAssignsItsReplicas) {
  Training training(2);
  training.graph.variables().at("learning_rate").assign(at::full({}, 0.5));
  EXPECT_EQ(training.value("tower1/learning_rate").item<float>(), 0.5F);
}

TEST(ParallelTest, MembersMustBeRecordedFunctions) {
  EXPECT_ERROR(Op::parallel("step", {Op::host("host", [] {})}), "is not a recorded function");
}

}  // namespace
}  // namespace tensorpack
