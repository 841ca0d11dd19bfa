// SPDX-License-Identifier: Apache-2.0
// What must be equal in all towers and ranks, and how it is found out that it is not.
#include "tensorpack/parallel/equal_variables.h"

#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>
#include <mutex>

#include "tensorpack/parallel/checksums.h"
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

// ---- checksums

uint64_t by_sums(const at::Tensor& tensor) { return detail::checksums_by_sums({tensor})[0]; }

TEST(ChecksumsTest, EveryBitCountsInEveryType) {
  for (const auto type : {at::kByte, at::kBool, at::kHalf, at::kBFloat16, at::kInt, at::kFloat,
                          at::kDouble, at::kLong, at::kComplexFloat, at::kComplexDouble}) {
    const at::Tensor tensor = at::zeros({5}, type);
    const uint64_t hash = checksums({tensor})[0];
    const uint64_t sum = by_sums(tensor);
    auto* bytes = static_cast<uint8_t*>(tensor.data_ptr());
    for (size_t i = 0; i < tensor.nbytes(); ++i) {
      for (int bit = 0; bit < (type == at::kBool ? 1 : 8); ++bit) {
        bytes[i] = static_cast<uint8_t>(1U << bit);
        EXPECT_NE(checksums({tensor})[0], hash) << type << " byte " << i << " bit " << bit;
        EXPECT_NE(by_sums(tensor), sum) << type << " byte " << i << " bit " << bit;
      }
      bytes[i] = 0;
    }
  }
}

TEST(ChecksumsTest, SumsDependOnThePlaceAndOnNothingElse) {
  // More than the rows that are added up at a time, and a rest.
  const at::Tensor tensor = at::arange(33 * (1 << 17) + 5).to(at::kFloat);
  const uint64_t sum = by_sums(tensor);
  EXPECT_EQ(by_sums(tensor.clone()), sum);
  for (const int64_t other : {int64_t{1}, int64_t{1} << 17, tensor.numel() - 1}) {
    const at::Tensor swapped = tensor.clone();
    swapped[0].copy_(tensor[other]);
    swapped[other].copy_(tensor[0]);
    EXPECT_NE(by_sums(swapped), sum) << other;
  }
}

TEST(ChecksumsTest, MemoryFormatsOfEqualElementsCountAlike) {
  const at::Tensor tensor = at::arange(120).to(at::kFloat).view({2, 3, 4, 5});
  const at::Tensor channels_last = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_EQ(checksums({tensor, at::empty({0})}), checksums({channels_last, at::empty({0})}));
  EXPECT_EQ(by_sums(tensor), by_sums(channels_last));
}

// ---- towers

// Calls a function in one of the methods of a callback.
class CallIn final : public Callback {
 public:
  CallIn(std::string method, std::function<void(Callback&)> function)
      : method_(std::move(method)), function_(std::move(function)) {}
  void before_train() override { call_in("before_train"); }
  void before_epoch() override { call_in("before_epoch"); }
  RunArgs before_run(RunContext&) override {
    call_in("before_run");
    return {};
  }
  void after_run(RunContext&, const FetchedValues&) override { call_in("after_run"); }
  void trigger_step() override { call_in("trigger_step"); }
  void after_epoch() override { call_in("after_epoch"); }
  void trigger() override { call_in("trigger"); }
  void after_triggers() override { call_in("after_triggers"); }
  void after_train() override { call_in("after_train"); }

 private:
  void call_in(const std::string& method) {
    if (method == method_) function_(*this);
  }

  std::string method_;
  std::function<void(Callback&)> function_;
};

// After a step of every epoch.
CallIn after_step(int64_t step, const std::function<void(Graph&)>& function) {
  return {"trigger_step", [=](Callback& self) {
            if (self.local_step() == step) function(self.graph());
          }};
}

CallIn fill_learning_rate() {
  return after_step(1, [](Graph& graph) {
    const at::NoGradGuard no_grad;
    graph.variables().at("learning_rate").tensor.fill_(0.01);
  });
}

void train_for(SingleCostTrainer&& trainer, OwnedList<Callback> callbacks,
               Owned<Optimizer> optimizer = SGD({.lr = 0.1}),
               const std::function<at::Tensor(const at::Tensor&)>& logits = mlp) {
  trainer.setup_graph(image_inputs(), QueueInput(images(4)), cost_of(logits), std::move(optimizer));
  trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 4, .max_epoch = 2});
}

TEST(EqualTowersTest, ANumberThatOneTowerAloneWasGivenIsAnErrorAtTheEndOfTheEpoch) {
  EXPECT_ERROR(train_for(SyncMultiGPUTrainerReplicated(Devices::cpu(3)), {fill_learning_rate()}),
               "towers differ at the end of epoch 1 in what must be equal: 'learning_rate' is "
               "0.01, and 'tower1/learning_rate' is 0.1");
}

TEST(EqualTowersTest, ItIsAnErrorWithoutTheBroadcastToo) {
  EXPECT_ERROR(
      train_for(SyncMultiGPUTrainerReplicated(Devices::cpu(2), {.sync_every_epoch = false}),
                {fill_learning_rate()}),
      "'tower1/learning_rate' is 0.1");
}

TEST(EqualTowersTest, WhoSaysThatTowersRoundDifferentlyIsBelieved) {
  EXPECT_NO_THROW(train_for(SyncMultiGPUTrainerReplicated(Devices::cpu(2), {.check_equal = false}),
                            {fill_learning_rate()}));
}

TEST(EqualTowersTest, OneSetOfVariablesIsEqualToItself) {
  EXPECT_NO_THROW(train_for(SyncMultiGPUTrainer(Devices::cpu(2)), {fill_learning_rate()}));
  EXPECT_NO_THROW(
      train_for(SyncMultiGPUTrainerParameterServer(Devices::cpu(2)), {fill_learning_rate()}));
  EXPECT_NO_THROW(train_for(AsyncMultiGPUTrainer(Devices::cpu(2)), {fill_learning_rate()}));
}

TEST(EqualTowersTest, AssigningReachesAllTowers) {
  EXPECT_NO_THROW(
      train_for(SyncMultiGPUTrainerReplicated(Devices::cpu(2)), {after_step(1, [](Graph& graph) {
                  const at::Tensor w = graph.variables().at("fc0/W").tensor;
                  graph.variables().at("fc0/W").assign(w.detach() / 2);
                })}));
}

TEST(EqualTowersTest, BatchNormAccumulatedGradientsAndTowerVariablesMayDiffer) {
  const auto logits = [](const at::Tensor& image) {
    if (get_current_tower_context().is_training()) {
      const at::NoGradGuard no_grad;
      get_tower_variable("seen", {}).add_(image.mean());
    }
    return mlp(BatchNorm("bn", image));
  };
  // An epoch of four steps ends in the middle of an accumulation.
  EXPECT_NO_THROW(train_for(SyncMultiGPUTrainerReplicated(Devices::cpu(2)), {},
                            AccumGradOptimizer(Adam({.lr = 0.01}), 3), logits));
}

// Differentiates without the library, so that gradients are not averaged.
class OwnGradients final : public TowerTrainer {
 public:
  OwnGradients(DataParallel parallel, DataFlowPtr data)
      : TowerTrainer(std::move(parallel), kSeeded) {
    setup_tower(image_inputs(), QueueInput(std::move(data)), cost_of(mlp));
    const auto optimizer = std::make_shared<SGD>(SGDOptions{.lr = 0.1});
    set_train_op(define("train_op", [optimizer](TowerContext& tower) {
      std::vector<at::Tensor> weights;
      for (const Variable* variable : tower.trainable()) weights.push_back(variable->tensor);
      const auto values = torch::autograd::grad({tower.tensor("cost")}, weights);
      Gradients gradients;
      for (size_t i = 0; i < weights.size(); ++i) {
        gradients.push_back({tower.trainable()[i], values[i]});
      }
      const at::NoGradGuard no_grad;
      optimizer->apply_gradients(gradients);
    }));
  }
};

TEST(EqualTowersTest, GradientsThatAreNotAveragedAreAnErrorAtTheEndOfTheEpoch) {
  OwnGradients trainer({.devices = Devices::cpu(2)}, images(4));
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 3, .max_epoch = 2}),
               "towers differ at the end of epoch 1 in what must be equal: 'fc0/W' is a tensor");
}

// ---- ranks

struct Job {
  explicit Job(int size) : size(size) {}

  void run(const std::function<void(std::shared_ptr<ProcessGroup>)>& train) {
    stdout_of([&] { errors = run_ranks(size, 20s, train); });
  }

  int size;
  std::vector<std::string> errors = {};
};

DataFlowPtr part_of_images(const ProcessGroup& group) {
  return images(4) | shard({.rank = group.rank(), .size = group.size()});
}

DistributedOptions options_of(const std::shared_ptr<ProcessGroup>& group, int towers = 1) {
  return {.devices = Devices::cpu(towers), .processes = group, .graph = kSeeded};
}

void train_as_rank(const std::shared_ptr<ProcessGroup>& group, OwnedList<Callback> callbacks,
                   const DistributedOptions& options, int64_t epochs = 2) {
  DistributedTrainer trainer(options);
  trainer.setup_graph(image_inputs(), QueueInput(part_of_images(*group)), cost_of(mlp),
                      SGD({.lr = 0.1}));
  trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 4, .max_epoch = epochs});
}

void train_as_rank(const std::shared_ptr<ProcessGroup>& group, OwnedList<Callback> callbacks) {
  train_as_rank(group, std::move(callbacks), options_of(group));
}

template <typename T>
T in_all_ranks(T callback) {
  callback.set_chief_only(false);
  return callback;
}

TEST(EqualRanksTest, ANumberThatOneRankAloneWasGivenIsAnErrorInAll) {
  Job ranks(3);
  ranks.run([](const auto& group) {
    train_as_rank(group, {in_all_ranks(after_step(2, [rank = group->rank()](Graph& graph) {
                    if (rank == 1) graph.variables().at("learning_rate").tensor.fill_(0.5);
                  }))});
  });
  EXPECT_THAT(ranks.errors,
              Each(AllOf(HasSubstr("ranks differ at the end of epoch 1 in what must be equal: "
                                   "'learning_rate' is 0.1 in rank 0, and 0.5 in rank 1"),
                         HasSubstr("differ, too"))));
}

TEST(EqualRanksTest, AnyBitOfAWeightCounts) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    // After the last step of the epoch, so that nothing follows from it.
    train_as_rank(group, {in_all_ranks(after_step(3, [rank = group->rank()](Graph& graph) {
                    const at::NoGradGuard no_grad;
                    const at::Tensor w = graph.variables().at("fc0/W").tensor;
                    if (rank == 1) w[7][100].mul_(1.0000002);
                  }))});
  });
  EXPECT_THAT(ranks.errors, Each(HasSubstr("'fc0/W' is a tensor with checksum")));
}

TEST(EqualRanksTest, GradientsThatAreNotAveragedAreAnErrorAtTheEndOfTheEpoch) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    OwnGradients trainer(distributed(options_of(group)), part_of_images(*group));
    trainer.train({.steps_per_epoch = 3, .max_epoch = 2});
  });
  EXPECT_THAT(ranks.errors, Each(HasSubstr("ranks differ at the end of epoch 1")));
}

TEST(EqualRanksTest, TheTowersOfARankAreComparedToo) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(group, {in_all_ranks(fill_learning_rate())}, options_of(group, 2));
  });
  EXPECT_THAT(ranks.errors, Each(HasSubstr("'tower1/learning_rate' is 0.1")));
}

TEST(EqualRanksTest, WhoSaysThatRanksRoundDifferentlyIsBelieved) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    DistributedOptions options = options_of(group);
    options.check_equal = false;
    train_as_rank(
        group,
        {in_all_ranks(after_step(2,
                                 [rank = group->rank()](Graph& graph) {
                                   if (rank == 1)
                                     graph.variables().at("learning_rate").tensor.fill_(0.5);
                                 }))},
        options);
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
}

// ---- callbacks of the chief alone

void assign_learning_rate(Callback& self) {
  self.graph().variables().at("learning_rate").assign(at::full({}, 0.01));
}

TEST(ChiefOnlyTest, AssigningIsAnErrorThatNamesVariableAndCallbackInEveryMethod) {
  for (const char* method : {"before_train", "before_epoch", "before_run", "after_run",
                             "trigger_step", "after_epoch", "trigger", "after_triggers"}) {
    Job ranks(2);
    ranks.run(
        [&](const auto& group) { train_as_rank(group, {CallIn(method, assign_learning_rate)}); });
    EXPECT_THAT(ranks.errors, Each(AllOf(HasSubstr("[assign] 'learning_rate' is set by CallIn"),
                                         HasSubstr(".decided_by_chief = true"))))
        << method;
  }
}

// A trainer may have several groups of hooks, each of all callbacks.
TEST(ChiefOnlyTest, HooksThatWereTakenStayValidWhenOthersAreTaken) {
  std::atomic<int> runs = 0;
  class TwoGroups final : public SingleCostTrainer {
   public:
    using SingleCostTrainer::SingleCostTrainer;

   protected:
    void initialize_hooks() override {
      SingleCostTrainer::initialize_hooks();
      callbacks().hooks();
    }
  };
  Job ranks(2);
  ranks.run([&](const auto& group) {
    TwoGroups trainer(distributed(options_of(group)));
    trainer.setup_graph(image_inputs(), QueueInput(part_of_images(*group)), cost_of(mlp),
                        SGD({.lr = 0.1}));
    trainer.train({.callbacks = {CallIn("after_run", [&](Callback&) { ++runs; })},
                   .steps_per_epoch = 4,
                   .max_epoch = 1});
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  EXPECT_EQ(runs, 4);
}

TEST(ChiefOnlyTest, SchedulingTheCallbackIsNoWayAround) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(group,
                  {PeriodicTrigger(CallIn("trigger", assign_learning_rate), {.every_k_steps = 2})});
  });
  EXPECT_THAT(ranks.errors, Each(HasSubstr("'learning_rate' is set by PeriodicTrigger(CallIn)")));
}

TEST(ChiefOnlyTest, SettingAHyperParameterIsAnErrorThatNamesIt) {
  double noise = 1;
  for (const bool is_variable : {true, false}) {
    Job ranks(2);
    ranks.run([&](const auto& group) {
      train_as_rank(group, {CallIn("trigger", [&](Callback& self) {
                      AnyHyperParam param = is_variable
                                                ? AnyHyperParam("learning_rate")
                                                : AnyHyperParam(ObjAttrParam("noise", noise));
                      param->setup(self.graph());
                      param->set_value(0.5);
                    })});
    });
    EXPECT_THAT(ranks.errors, Each(HasSubstr(is_variable ? "[assign] 'learning_rate' is set by"
                                                         : "[set_value] 'noise' is set by")));
  }
  EXPECT_EQ(noise, 1);
}

TEST(ChiefOnlyTest, AnnouncingAChangeIsAnErrorThatNamesTheCallback) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(group,
                  {CallIn("trigger_step", [](Callback& self) { self.graph().announce_change(); })});
  });
  EXPECT_THAT(ranks.errors,
              Each(AllOf(HasSubstr("[announce_change] a change is announced by CallIn"),
                         HasSubstr("set_chief_only(false)"))));
}

TEST(ChiefOnlyTest, AChangeMayBeAnnouncedByAllRanksAndToAnotherGraph) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(
        group, {in_all_ranks(
                    CallIn("trigger_step", [](Callback& self) { self.graph().announce_change(); })),
                CallIn("trigger", [](Callback&) { Graph().announce_change(); })});
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
}

TEST(ChiefOnlyTest, ASetterForTheChiefAloneIsAnErrorBeforeTraining) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    ScheduledHyperParamSetter setter("learning_rate", {{1, 0.01}});
    setter.set_chief_only(true);
    OwnedList<Callback> callbacks;
    callbacks.add(std::move(setter));
    train_as_rank(group, std::move(callbacks));
  });
  EXPECT_THAT(ranks.errors[0], HasSubstr("learning_rate would be set in the chief process alone"));
}

// Has a variable that the other ranks do not have.
class CountInVariable final : public Callback {
 public:
  void setup_graph() override {
    count_ = &graph().create_variable("seen_by_chief", {}, {.role = VariableRole::kGlobal},
                                      graph().options().device);
  }
  void trigger_step() override { count_->assign(at::full({}, global_step())); }

 private:
  Variable* count_ = nullptr;
};

TEST(ChiefOnlyTest, WhatTheChiefAloneHasAndWhatComesAfterTrainingMayBeAssigned) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(group, {CountInVariable(), CallIn("after_train", assign_learning_rate)});
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
}

TEST(ChiefOnlyTest, AnotherGraphOfTheCallbackIsItsOwn) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(
        group, {CallIn("trigger", [](Callback&) {
          Graph graph;
          graph.create_variable("learning_rate", {}, {}, c10::kCPU).assign(at::full({}, 0.5));
        })});
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
}

TEST(ChiefOnlyTest, InAllRanksAndInOneProcessAssigningIsAllowed) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(group, {in_all_ranks(CallIn("trigger", assign_learning_rate))});
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  EXPECT_NO_THROW(train_for(SimpleTrainer(kSeeded), {CallIn("trigger", assign_learning_rate)}));
}

// ---- decided by the chief

// Reports a scalar in the chief alone, as InferenceRunner does.
CallbackFactory report_error() {
  return CallbackFactory({.trigger = [](Callback& self) {
    self.trainer().monitors().put_scalar("error",
                                         self.epoch_num() < 3 ? 1.0 / self.epoch_num() : 1);
  }});
}

double halve_on_plateau(int64_t epoch, double old, const Monitors& monitors) {
  if (epoch == 0) return old;
  const auto& history = monitors.get_history("error");
  const bool is_worse = history.size() > 1 && history.back().second >= history.end()[-2].second;
  return is_worse ? old / 2 : old;
}

TEST(DecidedByChiefTest, AScheduleMayDependOnWhatTheChiefAloneReports) {
  std::map<int, double> rates;
  std::mutex mutex;
  Job ranks(3);
  ranks.run([&](const auto& group) {
    auto look = in_all_ranks(CallbackFactory({.after_train = [&](Callback& self) {
      const std::lock_guard lock(mutex);
      rates[group->rank()] = self.graph().variables().at("learning_rate").tensor.item().toDouble();
    }}));
    train_as_rank(
        group,
        {report_error(),
         HyperParamSetterWithFunc("learning_rate", halve_on_plateau, {.decided_by_chief = true}),
         std::move(look)},
        options_of(group), /*epochs=*/4);
  });
  EXPECT_THAT(ranks.errors, Each(IsEmpty()));
  ASSERT_EQ(rates.size(), 3U);
  for (const auto& [rank, rate] : rates) EXPECT_FLOAT_EQ(rate, 0.025) << rank;
}

TEST(DecidedByChiefTest, MonitorsOfOtherRanksSayThatTheChiefHasTheScalar) {
  Job ranks(2);
  ranks.run([](const auto& group) {
    train_as_rank(group,
                  {report_error(), HyperParamSetterWithFunc("learning_rate", halve_on_plateau)});
  });
  EXPECT_THAT(ranks.errors[1], AllOf(HasSubstr("no scalar named 'error' has been reported in rank "
                                               "1"),
                                     HasSubstr("{.decided_by_chief = true}")));
  EXPECT_THAT(ranks.errors[0], HasSubstr("rank 1 left at step"));
}

}  // namespace
}  // namespace tensorpack::test
