// SPDX-License-Identifier: Apache-2.0
// The document "Understand Trainer", sentence by sentence.
#include <gmock/gmock.h>

#include "tensorpack/utils/fs.h"
#include "tests/spec/support.h"
#include "tests/support/event_recorder.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// "Tensorpack follows the "define-and-run" paradigm. Therefore a training script has two steps:
// 1. Define: Build graph for the model."
TEST(UnderstandTrainerSpec, WhatIsDefinedRunsLater) {
  Trainer trainer;
  const Op op = count_runs(trainer.graph());
  EXPECT_EQ(runs_of(trainer), 0) << "defined, not run";
  trainer.set_train_op(op);
  trainer.train({.steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_EQ(runs_of(trainer), 3);
}

// "Users can call whatever tensorflow functions to setup the graph. Users may or may not use
// tensorpack `InputSource`, `ModelDesc` or other utilities to build the graph."
TEST(UnderstandTrainerSpec, AGraphNeedsNoUtilitiesOfTheLibrary) {
  Trainer trainer;
  Graph& graph = trainer.graph();
  trainer.set_train_op(graph.define({.name = "power_iteration", .body = [&graph](const auto&) {
                                       TowerContext tower(graph);
                                       torch::NoGradGuard no_grad;
                                       const Tensor u = torch::triu(torch::ones({2, 2}));
                                       const Tensor v = get_variable("v", {2}, init::ones());
                                       const Tensor next = torch::mv(torch::mm(u, u.t()), v);
                                       v.copy_(next / torch::linalg_vector_norm(next));
                                       return NamedTensors();
                                     }}));
  trainer.train({.steps_per_epoch = 20, .max_epoch = 1});
  const Tensor v = trainer.variables().at("v").tensor;
  EXPECT_NEAR((v[0] / v[1]).item<double>(), (1 + std::sqrt(5.0)) / 2, 1e-5);
}

// "The goal of this step is to define "what to run" in later training steps, and it can happen
// either inside or outside tensorpack trainer."
TEST(UnderstandTrainerSpec, TheGraphIsDefinedInsideOrOutsideOfTheTrainer) {
  const auto graph = std::make_shared<Graph>();
  const Op op = count_runs(*graph);
  Trainer outside(graph);
  outside.set_train_op(op);
  outside.train({.steps_per_epoch = 2, .max_epoch = 1});
  EXPECT_EQ(runs_of(outside), 2);

  SimpleTrainer inside;
  inside.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  inside.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(inside);
}

// Notes at each moment how far the training is.
class Progress final : public Callback {
 public:
  explicit Progress(std::vector<std::string>& log) : log_(&log) {}
  void setup_graph() override {
    trainer().monitors();  // throws unless they are there
    note("setup_graph");
  }
  void before_train() override {
    trainer().sess();
    note("before_train");
  }
  void trigger_step() override { note("step"); }

 private:
  void note(const std::string& moment) {
    log_->push_back(moment + (graph().is_final() ? ", graph final" : ", graph open"));
  }
  std::vector<std::string>* log_;
};

// "2. Run: Train the model (the Trainer.train() method): 1. Setup callbacks/monitors. 2. Finalize
// graph, initialize session. 3. Run the training loop."
TEST(UnderstandTrainerSpec, TrainSetsUpCallbacksThenTheSessionThenRunsTheLoop) {
  std::vector<std::string> log;
  Trainer trainer;
  trainer.set_train_op(Op::nothing());
  trainer.train({.callbacks = {Progress(log)}, .steps_per_epoch = 2, .max_epoch = 1});
  EXPECT_THAT(log, ElementsAre("setup_graph, graph open", "before_train, graph final",
                               "step, graph final", "step, graph final"));
}

// "Q: What types of training can you do with tensorpack? A: Anything that runs in a loop."
TEST(UnderstandTrainerSpec, AnythingThatRunsInALoopIsATraining) {
  double root = 1;  // of 2, by Newton's method
  Trainer trainer;
  trainer.set_train_op(Op::host("newton", [&] { root = (root + 2 / root) / 2; }));
  trainer.train({.steps_per_epoch = 5, .max_epoch = 1});
  EXPECT_NEAR(root, std::sqrt(2.0), 1e-12);
}

// "Tensorpack trainers avoid making assumptions on what type of training you want to do (e.g., it
// doesn't have to be batched, SGD-like, or have `X`(inputs) and `y`(outputs))."
TEST(UnderstandTrainerSpec, AStepNeedsNoBatchNoGradientAndNoLabels) {
  Trainer trainer;
  Graph& graph = trainer.graph();
  trainer.set_train_op(
      graph.define({.name = "random_search", .body = [&graph](const auto&) {
                      TowerContext tower(graph);
                      torch::NoGradGuard no_grad;
                      const Tensor best = get_variable("best", {});
                      const Tensor next = best + torch::randn({});
                      const auto loss = [](const Tensor& x) { return (x - 3).abs(); };
                      best.copy_(torch::where(loss(next) < loss(best), next, best));
                      return NamedTensors();
                    }}));
  trainer.train({.steps_per_epoch = 300, .max_epoch = 1});
  EXPECT_NEAR(trainer.variables().at("best").tensor.item<double>(), 3, 0.1);
}

// A trainer that keeps (epoch, step) of every iteration.
class NotesSteps final : public Trainer {
 public:
  void run_step() override { steps.emplace_back(epoch_num(), local_step()); }
  std::vector<std::pair<int64_t, int64_t>> steps;
};

// "The only assumption is that your training follows this pattern:
//   for epoch_num in range(starting_epoch, max_epoch):
//     for local_step in range(steps_per_epoch):
//       run_step()"
TEST(UnderstandTrainerSpec, TheLoopIsTwoLoopsAroundRunStep) {
  NotesSteps trainer;
  trainer.train({.steps_per_epoch = 2, .starting_epoch = 3, .max_epoch = 4});
  EXPECT_THAT(trainer.steps, ElementsAre(Pair(3, 0), Pair(3, 1), Pair(4, 0), Pair(4, 1)));
}

// "Tensorpack base trainer implements the logic of running the iteration. Users or derived trainers
// should implement what the iteration is."
TEST(UnderstandTrainerSpec, TheBaseTrainerDoesNotKnowWhatAnIterationIs) {
  Trainer trainer;
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 1, .max_epoch = 1}),
               "the trainer does not know what a step is. Call set_train_op(), or override "
               "run_step().");
}

// The line that is learned in 12 steps, cut into epochs in any way; and how often callbacks ran.
std::pair<Line, int> learn_in_epochs_of(int64_t steps_per_epoch) {
  int epochs = 0;
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  trainer.train({.callbacks = {CallbackFactory({.trigger = [&](Callback&) { ++epochs; }})},
                 .steps_per_epoch = steps_per_epoch,
                 .max_epoch = 12 / steps_per_epoch});
  return {line_of(trainer), epochs};
}

// "But `steps_per_epoch` can be any number you set and it only affects the schedule of callbacks."
TEST(UnderstandTrainerSpec, StepsPerEpochChangesTheScheduleOfCallbacksAlone) {
  const auto [line, epochs] = learn_in_epochs_of(4);  // the size of the data
  EXPECT_EQ(epochs, 3);
  for (const int64_t steps : {1, 3, 12}) {
    const auto [same_line, other_epochs] = learn_in_epochs_of(steps);
    EXPECT_EQ(same_line, line);
    EXPECT_EQ(other_epochs, 12 / steps);
  }
}

// "In other words, an "epoch" in tensorpack is the default period to run callbacks (validation,
// summary, checkpoint, etc.)."
TEST(UnderstandTrainerSpec, AnEpochIsThePeriodOfValidationSummariesAndCheckpoints) {
  const TempDir dir;
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), QueueInput(linear_data()),
      [](const Tensor& x, const Tensor& y) {
        const Tensor cost = linear_cost(x, y);
        add_moving_summary(cost);
        return cost;
      },
      SGD({.lr = 0.1}));
  trainer.train({.callbacks = {ModelSaver({.checkpoint_dir = dir.path()}), MergeAllSummaries(),
                               InferenceRunner(linear_data(), {ScalarStats({"cost"})})},
                 .steps_per_epoch = 2,
                 .max_epoch = 3});
  const auto steps_of = [&](const std::string& name) {
    std::vector<int64_t> steps;
    for (const auto& [step, value] : trainer.monitors().get_history(name)) steps.push_back(step);
    return steps;
  };
  EXPECT_THAT(steps_of("validation_cost"), ElementsAre(2, 4, 6));
  EXPECT_THAT(steps_of("cost"), ElementsAre(2, 4, 6));
  for (const int step : {2, 4, 6}) {
    EXPECT_TRUE(std::filesystem::exists(dir / fmt::format("model-{}.safetensors", step)));
  }
}

// "These trainers will take care of step 1 (define the graph), with the following arguments:
// 1. Some `InputDesc`, the metadata about the input. 2. An `InputSource`, where the input come
// from. 3. A function which takes input tensors and returns the cost. 4. A function which returns
// an optimizer."
TEST(UnderstandTrainerSpec, SetupGraphTakesInputsASourceACostAndAnOptimizer) {
  const std::vector<InputDesc> inputs = {InputDesc{"x", {-1}}, InputDesc{"y", {-1}}};
  const auto get_cost = [](const Tensor& x, const Tensor& y) {
    return (get_variable("w", {}) * x + get_variable("b", {}) - y).square().mean();
  };
  const auto get_optimizer = [] { return SGD({.lr = 0.1}); };
  SimpleTrainer trainer;
  trainer.setup_graph(inputs, QueueInput(linear_data()), get_cost, get_optimizer);
  trainer.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(trainer);
}

// The same: each of the four is asked for.
TEST(UnderstandTrainerSpec, SetupGraphTellsWhichArgumentIsMissing) {
  const auto setup = [](std::vector<InputDesc> inputs, Owned<InputSource> input, TowerFunc cost,
                        Owned<Optimizer> optimizer) {
    SimpleTrainer().setup_graph(std::move(inputs), std::move(input), std::move(cost),
                                std::move(optimizer));
  };
  EXPECT_ERROR(setup({{"x", {-1}}}, FeedInput(linear_data()), linear_cost, SGD()),
               "it takes 2 tensors, the input signature has 1 (x)");
  EXPECT_ERROR(setup(linear_inputs(), nullptr, linear_cost, SGD()), "there is no input source");
  EXPECT_ERROR(setup(linear_inputs(), FeedInput(linear_data()), {}, SGD()),
               "[tower function] it is empty.");
  EXPECT_ERROR(setup(linear_inputs(), FeedInput(linear_data()), linear_cost, nullptr),
               "there is no optimizer");
}

// "If you just want to do some extra work during training, first consider writing it as a
// callback."
TEST(UnderstandTrainerSpec, ExtraWorkIsACallback) {
  class KeepWPositive final : public Callback {
   public:
    void trigger_step() override {
      torch::NoGradGuard no_grad;
      const auto lock = graph().lock_variables();
      graph().variables().at("w").tensor.clamp_(0, 1);
    }
  };
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  trainer.train({.callbacks = {KeepWPositive()}, .steps_per_epoch = 4, .max_epoch = 50});
  EXPECT_EQ(line_of(trainer).w, 1) << "2 without the callback";
}

// "You will need to do two things for a new Trainer: 1. Define the graph. There are 2 ways you can
// do this: 1. Create any tensors and ops you need, before creating the trainer."
// "2. Define what is the iteration. There are 2 ways to define the iteration: 1. Set
// `Trainer.train_op` to a TensorFlow operation. This op will be run by default."
TEST(UnderstandTrainerSpec, ATrainerRunsATrainOpThatWasCreatedBeforeIt) {
  const auto graph = std::make_shared<Graph>();
  const Op op = count_runs(*graph);
  Trainer trainer(graph);
  trainer.set_train_op(op);
  trainer.train({.steps_per_epoch = 3, .max_epoch = 2});
  EXPECT_EQ(runs_of(trainer), 6);
  EXPECT_EQ(trainer.global_step(), 6);
}

// "2. Create them inside `Trainer.__init__`."
TEST(UnderstandTrainerSpec, ATrainerDefinesItsGraphInItsConstructor) {
  class CountingTrainer final : public Trainer {
   public:
    CountingTrainer() { set_train_op(count_runs(graph())); }
  };
  CountingTrainer trainer;
  trainer.train({.steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_EQ(runs_of(trainer), 3);
}

// "2. Subclass `Trainer` and override the `run_step()` method. This way you can do something more
// than running an op."
TEST(UnderstandTrainerSpec, RunStepDoesMoreThanRunAnOp) {
  class TwiceAndMore final : public Trainer {
   public:
    TwiceAndMore() : op_(count_runs(graph())) {}
    void run_step() override {
      hooked_sess().run(op_);
      if (local_step() % 2 == 0) hooked_sess().run(op_);
      ++work_on_the_host;
    }
    int work_on_the_host = 0;

   private:
    Op op_;
  };
  TwiceAndMore trainer;
  trainer.train({.steps_per_epoch = 4, .max_epoch = 1});
  EXPECT_EQ(runs_of(trainer), 6);
  EXPECT_EQ(trainer.work_on_the_host, 4);
}

// Runs its op some times in either session.
class TwoSessionsTrainer final : public TowerTrainer {
 public:
  TwoSessionsTrainer(int runs, int hooked_runs) : runs_(runs), hooked_runs_(hooked_runs) {
    setup_tower({{"x", {-1}}}, numbers(), [](const Tensor& x) {
      torch::NoGradGuard no_grad;
      add_tensor_summary("x", x, {SummaryType::kMean});
      named("sum", get_variable("sum", {}, {.role = VariableRole::kModel}).add_(x.sum()));
    });
    op_ = define("op", {});
  }
  void run_step() override {
    for (int i = 0; i < runs_; ++i) sess().run(op_);
    for (int i = 0; i < hooked_runs_; ++i) hooked_sess().run(op_);
  }

 private:
  int runs_, hooked_runs_;
  Op op_;
};

// "Note that trainer has `self.sess` and `self.hooked_sess`: only the hooked session will trigger
// the `before_run`/`after_run` callbacks."
TEST(UnderstandTrainerSpec, OnlyTheHookedSessionTriggersBeforeRunAndAfterRun) {
  const auto events_of = [](int runs, int hooked_runs) {
    const EventLog log = make_event_log();
    TwoSessionsTrainer(runs, hooked_runs)
        .train({.callbacks = {EventRecorder(log)}, .steps_per_epoch = 1, .max_epoch = 1});
    return *log;
  };
  EXPECT_THAT(events_of(2, 0), testing::Not(testing::Contains(HasSubstr("_run"))));
  EXPECT_THAT(events_of(1, 2),
              testing::IsSupersetOf({"before_run 1/0/0", "after_run 1/0/1", "before_run 1/0/1",
                                     "after_run 1/0/2", "trigger_step 1/0/2"}));
}

// "If you need more than one `Session.run` in one steps, special care needs to be taken to choose
// which session to use, because many states (global steps, StagingArea, summaries) are maintained
// through `before_run`/`after_run`."
TEST(UnderstandTrainerSpec, TheGlobalStepCountsHookedRuns) {
  TwoSessionsTrainer unhooked(2, 0), once(2, 1), twice(0, 2);
  for (TwoSessionsTrainer* trainer : {&unhooked, &once, &twice}) {
    trainer->train({.steps_per_epoch = 3, .max_epoch = 1});
  }
  EXPECT_EQ(unhooked.global_step(), 0);
  EXPECT_EQ(once.global_step(), 3);
  EXPECT_EQ(twice.global_step(), 6);
}

// The same, of summaries.
TEST(UnderstandTrainerSpec, SummariesAreTakenFromHookedRuns) {
  TwoSessionsTrainer unhooked(2, 0), hooked(1, 1);
  for (TwoSessionsTrainer* trainer : {&unhooked, &hooked}) {
    trainer->train({.callbacks = {MergeAllSummaries()}, .steps_per_epoch = 3, .max_epoch = 1});
  }
  EXPECT_FALSE(unhooked.monitors().contains("x-mean"));
  EXPECT_EQ(hooked.monitors().get_latest("x-mean"), 5) << "of the last, hooked run of six";
}

// The same, of the StagingArea: here every run takes a batch, hooked or not.
TEST(UnderstandTrainerSpec, EveryRunTakesABatch) {
  TwoSessionsTrainer trainer(1, 1);
  trainer.train({.steps_per_epoch = 3, .max_epoch = 1});
  EXPECT_EQ(trainer.variables().at("sum").tensor.item<double>(), 0 + 1 + 2 + 3 + 4 + 5);
}

}  // namespace
}  // namespace tensorpack
