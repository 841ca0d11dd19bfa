// SPDX-License-Identifier: Apache-2.0
// An error tells its place: operator, layer, step, which data, which callback.
#include <gmock/gmock.h>

#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tests/support/act_at.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"
#include "tests/train/linear_model.h"
#include "tests/train/step_trainer.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

#define EXPECT_ERROR_THAT(statement, matcher) \
  EXPECT_THAT([&] { (void)(statement); }, ThrowsMessage<Error>(matcher))

std::vector<TensorSpec> word_inputs() { return {{"word", {-1}, at::kLong}}; }

// Words 0 to 3 are known.
at::Tensor embed(const at::Tensor& word) {
  const VariableScope scope("embed");
  return at::embedding(get_variable("W", {4, 2}, init::ones()), word);
}

at::Tensor word_cost(const at::Tensor& word) { return named("cost", embed(word).square().mean()); }

FromList words(std::vector<int64_t> list) {
  std::vector<DataPoint> points;
  for (const int64_t word : list) points.push_back({at::full({2}, word, at::kLong)});
  return FromList(std::move(points));
}

void train_words(std::vector<int64_t> list, OwnedList<Callback> callbacks = {},
                 ExecutorKind executor = ExecutorKind::kDefault) {
  SimpleTrainer trainer;
  trainer.setup_graph(word_inputs(), FeedInput(words(std::move(list))), word_cost,
                      SGD({.lr = 0.1}));
  trainer.train({.callbacks = std::move(callbacks),
                 .session = {.executor = executor},
                 .steps_per_epoch = 4,
                 .max_epoch = 1});
}

TEST(StepErrorsTest, AFailedStepTellsOperatorLayerDataAndStep) {
  EXPECT_ERROR_THAT(
      train_words({0, 1, 9, 2}),
      AllOf(HasSubstr("[run 'train_op'] index out of range in self (in aten::embedding, scope "
                      "'embed')"),
            HasSubstr("in a training step (batches of the training data taken so far: 3)"),
            HasSubstr("at global_step = 2")));
}

TEST(StepErrorsTest, SoDoesTheFirstStepWhichIsRecorded) {
  EXPECT_ERROR_THAT(train_words({9, 1, 2, 3}),
                    AllOf(HasSubstr("[run 'train_op'] index out of range in self (in "
                                    "aten::embedding, scope 'embed')"),
                          HasSubstr("at global_step = 0")));
}

TEST(StepErrorsTest, SoDoesAnEagerStep) {
  EXPECT_ERROR_THAT(
      train_words({0, 1, 9, 2}, {}, ExecutorKind::kEager),
      AllOf(HasSubstr("[run 'train_op'] index out of range in self (in aten::embedding, scope "
                      "'embed')"),
            HasSubstr("at global_step = 2")));
}

TEST(StepErrorsTest, OneOfSeveralTowersIsNamed) {
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  trainer.setup_graph(word_inputs(), FeedInput(words({0, 1, 2, 9})), word_cost, SGD({.lr = 0.1}));
  EXPECT_ERROR_THAT(trainer.train({.steps_per_epoch = 4, .max_epoch = 1}),
                    AllOf(HasSubstr("[run 'train_op/tower1'] index out of range in self (in "
                                    "aten::embedding, scope 'embed')"),
                          HasSubstr("at global_step = 1")));
}

TEST(StepErrorsTest, AFailedValidationTellsWhichDataItWas) {
  EXPECT_ERROR_THAT(
      train_words({0, 1, 2, 3}, {InferenceRunner(words({0, 1}), {ScalarStats({"cost"})}),
                                 InferenceRunner(words({2, 3, 9}), {ScalarStats({"cost"}, "test")},
                                                 {.tower_name = "Test"})}),
      AllOf(HasSubstr("[run 'Test'] index out of range in self (in aten::embedding, scope "
                      "'embed')"),
            HasSubstr("in datapoint 3 of the data for 'Test'"),
            HasSubstr("in trigger_epoch() of InferenceRunner"), HasSubstr("at global_step = 4")));
}

TEST(StepErrorsTest, AnErrorAtDefinitionTellsTheLayer) {
  SimpleTrainer trainer;
  EXPECT_ERROR_THAT(
      trainer.setup_graph(
          {{"x", {-1, 3}}}, FeedInput(linear_data()),
          [](const at::Tensor& x) {
            const VariableScope scope("head");
            return x.mm(get_variable("W", {4, 1})).mean();
          },
          SGD({.lr = 0.1})),
      AllOf(HasSubstr("[define 'train_op'] "), HasSubstr("(in aten::mm, scope 'head', while it")));
}

class Methods : public testing::TestWithParam<std::string> {};

OwnedList<Callback> throwing(const std::string& method, std::function<void()> action) {
  return {PeriodicCallback(ActAt(method, 0, std::move(action)), {.every_k_epochs = 1})};
}

TEST_P(Methods, ACallbackThatThrowsIsNamed) {
  EXPECT_ERROR_THAT(
      train_words({0, 1, 2, 3}, throwing(GetParam(), [] { throw std::out_of_range("map::at"); })),
      AllOf(HasSubstr("map::at"), HasSubstr("in " + GetParam() + "() of PeriodicCallback(ActAt)")));
}

class OwnType : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

TEST_P(Methods, TypesOfTheUserPassAsTheyAre) {
  const std::string log = stdout_of([&] {
    EXPECT_THROW(train_words({0, 1, 2, 3}, throwing(GetParam(), [] { throw OwnType("mine"); })),
                 OwnType);
  });
  EXPECT_THAT(log, AllOf(HasSubstr("mine"),
                         HasSubstr("in " + GetParam() + "() of PeriodicCallback(ActAt)")));
}

INSTANTIATE_TEST_SUITE_P(StepErrorsTest, Methods,
                         testing::Values("setup_graph", "before_train", "before_epoch",
                                         "before_run", "after_run", "trigger_step", "after_epoch",
                                         "trigger_epoch"),
                         [](const auto& info) { return info.param; });

class AsksFor final : public Callback {
 public:
  explicit AsksFor(std::string name) : fetch_(std::move(name)) {}
  RunArgs before_run(RunContext&) override { return {.fetches = {fetch_}}; }

 private:
  std::string fetch_;
};

TEST(StepErrorsTest, TheCallbackWithTheWrongFetchIsNamed) {
  EXPECT_ERROR_THAT(train_words({0}, {AsksFor("cost"), AsksFor("kost")}),
                    HasSubstr("[before_run() of AsksFor] no tensor named 'kost' in op 'train_op'. "
                              "Did you mean"));
}

TEST(StepErrorsTest, InternalErrorsStaySo) {
  StepTrainer trainer([](StepTrainer&) { throw InternalError("ours"); });
  EXPECT_THAT([&] { trainer.train({.steps_per_epoch = 1, .max_epoch = 1}); },
              ThrowsMessage<InternalError>("ours\n  in a training step\n  at global_step = 0"));
}

// Data that does not fit fails before there is a step, and names input, shapes and source.
class FirstBatchTest : public testing::Test {
 protected:
  template <typename MakeTrainer>
  void expect_refused(MakeTrainer make_trainer, const DataPoint& point, const std::string& text) {
    bool has_begun = false;
    auto trainer = make_trainer();
    trainer.setup_graph(linear_inputs(), FeedInput(FromList({point})), linear_cost,
                        SGD({.lr = 0.1}));
    EXPECT_ERROR_THAT(
        trainer.train({.callbacks = {ActAt("before_epoch", 0, [&] { has_begun = true; })},
                       .steps_per_epoch = 1,
                       .max_epoch = 1}),
        AllOf(HasSubstr(text),
              HasSubstr("in the first batch of the training data, from FeedInput(FromList)")));
    EXPECT_FALSE(has_begun);
  }
};

TEST_F(FirstBatchTest, IsComparedWithTheSignatureBeforeTheFirstStep) {
  const auto one = [] { return SimpleTrainer(); };
  expect_refused(one, {at::ones({2, 3}), at::ones({2})}, "'x' must have shape [-1], got [2, 3]");
  expect_refused(one, {at::ones({2}), at::ones({2}, at::kDouble)},
                 "'y' must be of type Float, got Double");
  expect_refused(one, {at::ones({2})}, "a datapoint has 1 component, the input signature has 2");
}

TEST_F(FirstBatchTest, WithSeveralTowersToo) {
  expect_refused([] { return SyncMultiGPUTrainerReplicated(Devices::cpu(2)); },
                 {at::ones({2, 3}), at::ones({2})}, "'x' must have shape [-1], got [2, 3]");
}

TEST_F(FirstBatchTest, IsTheOneOfTheFirstStep) {
  for (const int towers : {1, 2}) {
    SyncMultiGPUTrainerReplicated trainer(Devices::cpu(towers));
    trainer.setup_graph(
        word_inputs(), FeedInput(words({0, 1, 2, 3}), {.infinite = false}),
        [](const at::Tensor& word) {
          named("sum", word.sum());
          return word_cost(word);
        },
        SGD({.lr = 0.1}));
    std::vector<int64_t> seen;
    class Watch final : public Callback {
     public:
      explicit Watch(std::vector<int64_t>& seen) : seen_(seen) {}
      RunArgs before_run(RunContext&) override { return {.fetches = {"sum"}}; }
      void after_run(RunContext&, const FetchedValues& values) override {
        seen_.push_back(values[0].item<int64_t>() / 2);
      }

     private:
      std::vector<int64_t>& seen_;
    };
    trainer.train({.callbacks = {Watch(seen)}, .steps_per_epoch = 8, .max_epoch = 1});
    EXPECT_EQ(seen,
              towers == 1 ? (std::vector<int64_t>{0, 1, 2, 3}) : (std::vector<int64_t>{0, 2}));
  }
}

TEST_F(FirstBatchTest, IsNotTakenWhenThereAreNoSteps) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(FromList({DataPoint{}})), linear_cost,
                      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 1, .max_epoch = 0});
}

TEST(StepErrorsTest, ValidationDataThatDoesNotFitIsNamedBeforeTheFirstStep) {
  EXPECT_ERROR_THAT(
      train_words({0, 1, 2, 3}, {InferenceRunner(linear_data(), {ScalarStats({"cost"})})}),
      AllOf(HasSubstr("a datapoint has 2 components, the input signature has 1 (word)"),
            HasSubstr("in the first datapoint for 'InferenceTower'"),
            HasSubstr("in before_train() of InferenceRunner")));
}

TEST(StepErrorsTest, AnOpenDimensionThatSizesAVariableIsNamed) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1, -1}}}, FeedInput(FromList({DataPoint{at::ones({2, 5})}})),
      [](const at::Tensor& x) {
        return x.mm(get_variable("W", {x.size(1), 1}, init::ones())).mean();
      },
      SGD({.lr = 0.1}));
  EXPECT_ERROR_THAT(
      trainer.train({.steps_per_epoch = 1, .max_epoch = 1}),
      AllOf(HasSubstr("'W' was created with shape [64, 1] and is now asked for with shape [5, 1]"),
            HasSubstr("The input 'x: Float [-1, -1]' leaves a dimension open besides the first, "
                      "and the graph was built with [2, 64]")));
}

}  // namespace
}  // namespace tensorpack
