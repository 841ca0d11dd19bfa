// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_runner.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/classification_stats.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/combine.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/repeat.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/dataflow/take.h"
#include "tensorpack/input_source/proxy_input_source.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/remap_input_source.h"
#include "tensorpack/input_source/tensor_input.h"
#include "tests/support/capture.h"
#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;
using testing::ThrowsMessage;

DataPoint point(std::vector<float> x, std::vector<int64_t> label) {
  return {at::tensor(x), at::tensor(label)};
}

// Three right out of five, in uneven batches.
FromList five_samples() { return FromList({point({0, 1, 2, 3}, {0, 1, 2, 7}), point({4}, {7})}); }

// Claims a size that may be wrong, or none.
class Claims final : public DataFlow {
 public:
  explicit Claims(std::optional<int64_t> size) : size_(size) {}
  void start(int64_t pass) override { flow_.start(pass); }
  std::optional<DataPoint> next() override { return flow_.next(); }
  std::optional<int64_t> size() const override { return size_; }

 private:
  std::optional<int64_t> size_;
  FromList flow_ = five_samples();
};

class InferenceRunnerTest : public testing::Test {
 protected:
  void train(InferenceRunner runner) {
    text_ = stdout_of([&] { trainer_.train({std::move(runner)}); });
  }
  const auto& history(const std::string& name) { return trainer_.monitors().get_history(name); }

  FakeTrainer trainer_{{.steps_per_epoch = 2, .max_epoch = 2}};
  std::string text_;
};

TEST_F(InferenceRunnerTest, ReportsStatisticsOfEveryEpoch) {
  train({five_samples(), {ScalarStats({"mean_x"}), ClassificationError()}});
  EXPECT_THAT(history("validation_error"), ElementsAre(Pair(2, 0.4), Pair(4, 0.4)));
  EXPECT_THAT(history("validation_mean_x"), ElementsAre(Pair(2, 2), Pair(4, 2)));
  EXPECT_THAT(text_, HasSubstr("InferenceTower: 100%"));
}

// Each of the three batches is larger than the one before it.
FromList six_samples() {
  return FromList({point({0}, {0}), point({1, 2}, {1, 7}), point({3, 4, 5}, {7, 4, 7})});
}

FromList five_single_samples() {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < 5; ++i) points.push_back({at::ones({}), at::full({}, i, at::kLong)});
  return FromList(std::move(points));
}

TEST_F(InferenceRunnerTest, SaysOnceWhatBatchingLeftOut) {
  train({five_single_samples() | batch(3), {ScalarStats({"mean_x"})}});
  const std::string told =
      "the data of 'InferenceTower' ended with 2 datapoints that made no whole batch";
  EXPECT_THAT(text_, HasSubstr(told));
  EXPECT_EQ(text_.find(told), text_.rfind(told));
}

TEST_F(InferenceRunnerTest, SaysNothingWhereTheRemainderIsKept) {
  train({five_single_samples() | batch(3, {.remainder = true}), {ScalarStats({"mean_x"})}});
  EXPECT_THAT(text_, Not(HasSubstr("left out")));
}

// Notes the order in which it sees things.
class Order final : public Inferencer {
 public:
  explicit Order(std::vector<int64_t>& sizes) : sizes_(&sizes) {}
  std::vector<std::string> fetches() const override { return {"x"}; }
  void on_fetches(const std::vector<at::Tensor>& values) override {
    sizes_->push_back(values[0].numel());
  }

 private:
  std::vector<int64_t>* sizes_;
};

TEST_F(InferenceRunnerTest, SeveralTowersLeaveNothingOut) {
  for (const int towers : {2, 3, 4}) {
    FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 2});
    std::vector<int64_t> sizes;
    stdout_of([&] {
      trainer.train({InferenceRunner(six_samples(), {ClassificationError(), Order(sizes)},
                                     {.devices = Devices::cpu(towers)})});
    });
    EXPECT_THAT(trainer.monitors().get_history("validation_error"),
                ElementsAre(Pair(1, 0.5), Pair(2, 0.5)));
    EXPECT_THAT(sizes, ElementsAre(1, 2, 3, 1, 2, 3)) << towers;
  }
}

// Samples 0 to count - 1, of which those that 3 divides have another label than their number; cut
// into batches of `size`, the last one smaller.
DataFlowPtr every_third_is_wrong(int64_t count, int64_t size) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = i % 3 == 0 ? i + 1 : i;
    points.push_back({at::full({}, i, at::kFloat), at::full({}, label, at::kLong)});
  }
  return FromList(std::move(points)) | batch(size, {.remainder = true});
}

// What the validation of a classifier names.
void classify(const at::Tensor& x, const at::Tensor& label) {
  const at::Tensor right = x.round().to(at::kLong).eq(label).to(at::kFloat);
  named("accuracy", right.mean());
  named("error", 1 - right.mean());
  named("incorrect_vector", 1 - right);
  named("is_right", right.to(at::kLong));
  named("is_positive", at::ones_like(right, at::kLong));
  named("logits", at::stack({1 - right, right}, 1));  // of being wrong, of being right
}

InferenceRunnerOptions on_towers(int towers) {
  return {.tower_func = classify,
          .inputs = {{.name = "x", .shape = {-1}},
                     {.name = "label", .shape = {-1}, .dtype = at::kLong}},
          .devices = Devices::cpu(towers)};
}

// Means of batches beside counts of samples, however the data is cut and divided.
TEST_F(InferenceRunnerTest, MeansOfScalarsAgreeWithCountedSamples) {
  for (const int64_t samples : {1, 5, 9, 10, 13}) {
    for (const int64_t batch_size : {1, 4, 8, 100}) {
      for (const int towers : {1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} in batches of {}, {} towers", samples, batch_size, towers));
        FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
        stdout_of([&] {
          trainer.train({InferenceRunner(
              every_third_is_wrong(samples, batch_size),
              {ScalarStats({"accuracy", "error"}), ClassificationError("incorrect_vector", "wrong"),
               BinaryClassificationStats("is_positive", "is_right"),
               TopKAccuracy({1}, "logits", "is_positive")},
              on_towers(towers))});
        });
        const double wrong = static_cast<double>((samples + 2) / 3) / static_cast<double>(samples);
        const auto value = [&](const std::string& name) {
          return trainer.monitors().get_latest(name);
        };
        EXPECT_DOUBLE_EQ(value("wrong"), wrong);
        EXPECT_NEAR(value("validation_error"), wrong, 1e-6);
        EXPECT_NEAR(value("validation_accuracy") + value("wrong"), 1, 1e-6);
        EXPECT_DOUBLE_EQ(value("val_precision"), 1 - wrong);
        EXPECT_DOUBLE_EQ(value("validation_top1"), 1 - wrong);
      }
    }
  }
}

// Notes how many samples the datapoints have.
class Samples final : public Inferencer {
 public:
  explicit Samples(std::vector<int64_t>& seen) : seen_(&seen) {}
  std::vector<std::string> fetches() const override { return {"mean_x"}; }
  void on_fetches(const std::vector<at::Tensor>&) override { seen_->push_back(samples()); }

 private:
  std::vector<int64_t>* seen_;
};

TEST_F(InferenceRunnerTest, AnInferencerOfOnesOwnKnowsTheSamples) {
  std::vector<int64_t> seen;
  stdout_of([&] { trainer_.train({InferenceRunner(five_samples(), {Samples(seen)})}); });
  EXPECT_THAT(seen, ElementsAre(4, 1, 4, 1));
}

TEST_F(InferenceRunnerTest, TheUserMaySayHowManySamplesThereAre) {
  std::vector<int64_t> seen;
  stdout_of([&] {
    trainer_.train({InferenceRunner(
        five_samples(), {Samples(seen), ScalarStats({"mean_x"})},
        {.count_samples = [](const DataPoint& point) { return 3 * point[0].size(0); }})});
  });
  EXPECT_THAT(seen, ElementsAre(12, 3, 12, 3));
  EXPECT_THAT(
      [&] {
        FakeTrainer trainer;
        trainer.train({InferenceRunner(five_samples(), {ScalarStats({"mean_x"})},
                                       {.count_samples = [](const DataPoint&) { return -1; }})});
      },
      ThrowsMessage<Error>(HasSubstr(".count_samples says that a datapoint has -1 samples")));
}

// An image and its boxes: no batch.
TEST_F(InferenceRunnerTest, InputsThatDifferInTheirFirstDimensionCountAsOneSample) {
  std::vector<int64_t> seen;
  const std::string text = stdout_of([&] {
    trainer_.train({InferenceRunner(
        FromList({{at::zeros({6, 5}), at::zeros({2, 4})}, {at::zeros({7, 5}), at::zeros({1, 4})}}),
        {Samples(seen)},
        {.tower_func =
             [](const at::Tensor& image, const at::Tensor& boxes) {
               named("mean_x", image.mean() + boxes.mean());
             },
         .inputs = {{.name = "image", .shape = {-1, -1}}, {.name = "boxes", .shape = {-1, 4}}}})});
  });
  EXPECT_THAT(seen, ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(text, HasSubstr("differ in their first dimension, image [6, 5], boxes [2, 4]"));
}

TEST_F(InferenceRunnerTest, OneDeviceAndSeveralAreNotBothSet) {
  EXPECT_THAT(
      [&] {
        train({six_samples(),
               {ClassificationError()},
               {.device = at::kCPU, .devices = Devices::cpu(2)}});
      },
      ThrowsMessage<Error>(HasSubstr("both .device and .devices are set")));
}

TEST_F(InferenceRunnerTest, ServesOneTrainerAfterAnother) {
  InferenceRunner runner(
      five_samples(), {ScalarStats({"now"})},
      {.tower_func = [](const at::Tensor&,
                        const at::Tensor&) { named("now", get_variable("w", {}) * 1); },
       .inputs = {{.name = "x", .shape = {-1}},
                  {.name = "label", .shape = {-1}, .dtype = at::kLong}}});
  const auto serve = [&](FakeTrainer& trainer) {
    stdout_of([&] {
      trainer.train({CallbackFactory({
          .setup_graph =
              [&](Callback& self) {
                runner.attach(self.trainer());
                runner.setup_graph();
              },
          .before_train = [&](Callback&) { runner.before_train(); },
          .trigger = [&](Callback&) { runner.trigger(); },
          .after_train = [&](Callback&) { runner.after_train(); },
      })});
    });
    return trainer.monitors().get_latest("validation_now");
  };
  EXPECT_EQ(serve(trainer_), 4);
  FakeTrainer second({.steps_per_epoch = 1, .max_epoch = 1});
  EXPECT_EQ(serve(second), 1);
}

TEST_F(InferenceRunnerTest, DoesNotCountAsAStep) {
  train({five_samples(), {ClassificationError()}});
  EXPECT_EQ(trainer_.global_step(), 4);
  EXPECT_EQ(trainer_.variables().at("w").tensor.item<float>(), 4);
}

TEST_F(InferenceRunnerTest, SizesOfFlowsMayBeUnknownOrWrong) {
  for (std::optional<int64_t> size : {std::optional<int64_t>(), {1}, {100}}) {
    FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 1});
    stdout_of([&] { trainer.train({InferenceRunner(Claims(size), {ClassificationError()})}); });
    EXPECT_EQ(trainer.monitors().get_latest("validation_error"), 0.4);
  }
}

TEST_F(InferenceRunnerTest, TakesFlowsByPointer) {
  DataFlowPtr flow = std::make_unique<FromList>(five_samples());
  train({std::move(flow), {ClassificationError()}});
  EXPECT_EQ(history("validation_error").size(), 2u);
}

TEST_F(InferenceRunnerTest, AnEndlessInputSourceGivesOnePassFromItsBeginning) {
  train({QueueInput(five_samples(), {.capacity = 3}), {ClassificationError()}});
  EXPECT_THAT(history("validation_error"), ElementsAre(Pair(2, 0.4), Pair(4, 0.4)));
}

TEST_F(InferenceRunnerTest, AFiniteInputSourceEndsByItself) {
  InputSourcePtr input = std::make_unique<QueueInput>(
      Claims(std::nullopt), QueueInputOptions{.capacity = 3, .infinite = false});
  train({std::move(input), {ClassificationError()}});
  EXPECT_THAT(history("validation_error"), ElementsAre(Pair(2, 0.4), Pair(4, 0.4)));
}

DataFlowPtr of_unknown_size() {
  return five_samples() | filter([](const DataPoint&) { return true; });
}

// A source of the user's own, around another one.
class Renamed final : public ProxyInputSource {
 public:
  using ProxyInputSource::ProxyInputSource;
  std::string name() const override { return "renamed"; }
};

const std::vector<TensorSpec> kInputs = {{.name = "x", .shape = {-1}},
                                         {.name = "label", .shape = {-1}, .dtype = at::kLong}};

// All of them go on with the next pass when they train.
TEST_F(InferenceRunnerTest, ASourceThatKnowsItsPassesGivesOneOfUnknownSize) {
  const std::vector<std::function<InferenceInput()>> makers = {
      [] { return InferenceInput(of_unknown_size()); },
      [] { return InferenceInput(QueueInput(of_unknown_size())); },
      [] { return InferenceInput(FeedInput(of_unknown_size())); },
      [] { return InferenceInput(FeedInput(of_unknown_size(), {.interruptible = false})); },
      [] { return InferenceInput(StagingInput(QueueInput(of_unknown_size()))); },
      [] { return InferenceInput(Renamed(QueueInput(of_unknown_size()))); },
      [] {
        return InferenceInput(
            remap_input_source(QueueInput(of_unknown_size()), kInputs, {"x", "label"}));
      },
      // A size that is wrong.
      [] { return InferenceInput(QueueInput(Claims(1))); },
      [] { return InferenceInput(QueueInput(Claims(100))); },
  };
  for (size_t i = 0; i < makers.size(); ++i) {
    SCOPED_TRACE(i);
    FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 2});
    stdout_of([&] { trainer.train({InferenceRunner(makers[i](), {ClassificationError()})}); });
    EXPECT_THAT(trainer.monitors().get_history("validation_error"),
                ElementsAre(Pair(1, 0.4), Pair(2, 0.4)));
  }
}

TEST_F(InferenceRunnerTest, BatchesOfSinglePointsEndWithThePass) {
  train({BatchQueueInput(five_single_samples() | filter([](const DataPoint&) { return true; }), 2),
         {ScalarStats({"mean_x"})}});
  EXPECT_THAT(history("validation_mean_x"), ElementsAre(Pair(2, 1), Pair(4, 1)));
}

TEST_F(InferenceRunnerTest, DataThatNeverEndsIsAnError) {
  const std::vector<std::function<InferenceInput()>> makers = {
      [] { return InferenceInput(five_samples() | repeat()); },
      [] { return InferenceInput(of_unknown_size() | repeat() | prefetch(2)); },
      [] { return InferenceInput(QueueInput(five_samples() | repeat())); },
      [] { return InferenceInput(QueueInput(five_single_samples() | repeat() | batch(2))); },
      [] { return InferenceInput(FeedInput(five_samples() | shuffle(10) | repeat())); },
      [] { return InferenceInput(StagingInput(QueueInput(five_samples() | repeat()))); },
      [] { return InferenceInput(Renamed(FeedInput(five_samples() | repeat()))); },
      [] { return InferenceInput(BatchQueueInput(five_single_samples() | repeat(), 2)); },
      [] {
        return InferenceInput(concat({five_samples(), five_samples() | repeat()}));
      },
      [] { return InferenceInput(TensorInput([](int64_t) { return point({1}, {1}); })); },
      [] { return InferenceInput(DummyConstantInput({{.shape = {1}}})); },
  };
  for (size_t i = 0; i < makers.size(); ++i) {
    EXPECT_THAT([&] { InferenceRunner(makers[i](), {ClassificationError()}); },
                ThrowsMessage<Error>(AllOf(HasSubstr("[InferenceRunner] the data, "),
                                           HasSubstr("never ends"), HasSubstr("take(n)"))))
        << i;
  }
}

TEST_F(InferenceRunnerTest, AnEndlessFlowThatIsCutOffEnds) {
  train({QueueInput(five_samples() | repeat() | take(3)), {ScalarStats({"mean_x"})}});
  EXPECT_THAT(history("validation_mean_x"), ElementsAre(Pair(2, 16. / 9), Pair(4, 16. / 9)));
  FakeTrainer trainer({.steps_per_epoch = 1, .max_epoch = 2});
  stdout_of([&] {
    trainer.train({InferenceRunner(
        TensorInput([](int64_t i) { return point({static_cast<float>(i)}, {0}); }, 3),
        {ScalarStats({"mean_x"})})});
  });
  EXPECT_THAT(trainer.monitors().get_history("validation_mean_x"),
              ElementsAre(Pair(1, 1), Pair(2, 1)));
}

// It cannot be known that it never ends.
class Endless final : public DataFlow {
 public:
  std::optional<DataPoint> next() override { return point_; }

 private:
  DataPoint point_ = point({1}, {1});
};

TEST_F(InferenceRunnerTest, APassThatDoesNotEndIsAnErrorAfterAMillionDatapoints) {
  InferenceInput input((Endless()));
  input.check_ends();
  input.start();
  const std::string text = stdout_of([&] {
    EXPECT_THAT(
        [&] {
          while (input.next()) {
          }
        },
        ThrowsMessage<Error>(HasSubstr("has given 1000000 datapoints and has not ended")));
  });
  EXPECT_THAT(text, HasSubstr("has given 10000 datapoints and has not ended"));
}

TEST_F(InferenceRunnerTest, InferencersMayShareFetches) {
  train(
      {five_samples(),
       {ScalarStats({"mean_x"}), ScalarStats({"mean_x"}, ""), ScalarStats({"w", "mean_x"}, "a")}});
  EXPECT_EQ(history("mean_x"), history("validation_mean_x"));
  EXPECT_EQ(history("a_mean_x"), history("validation_mean_x"));
  EXPECT_THAT(history("a_w"), ElementsAre(Pair(2, 2), Pair(4, 4)));
}

TEST_F(InferenceRunnerTest, EmptyDataReportsNothing) {
  train({FromList({}), {ScalarStats({"mean_x"}), ClassificationError()}});
  EXPECT_FALSE(trainer_.monitors().contains("validation_mean_x"));
  EXPECT_FALSE(trainer_.monitors().contains("validation_error"));
  EXPECT_THAT(text_, HasSubstr("the data of 'InferenceTower' is empty"));
}

TEST_F(InferenceRunnerTest, RunsOnTheDeviceItIsGiven) {
  trainer_.setup({InferenceRunner(five_samples(), {ClassificationError()}, {.device = at::kMeta})});
  EXPECT_EQ(trainer_.graph().ops().back().device(), c10::Device(at::kMeta));
}

TEST_F(InferenceRunnerTest, SeveralRunnersGetTowersOfTheirOwn) {
  stdout_of([&] {
    trainer_.train({InferenceRunner(five_samples(), {ClassificationError()}),
                    InferenceRunner(five_samples(), {ClassificationError("prediction", "sum")})});
  });
  std::vector<std::string> names;
  for (const Op& op : trainer_.graph().ops()) names.push_back(op.name());
  EXPECT_THAT(names, ElementsAre("train_op", "InferenceTower", "InferenceTower1"));
  EXPECT_EQ(history("sum").size(), 2u);
}

TEST_F(InferenceRunnerTest, TakesATowerFunctionOfItsOwn) {
  train({FromList({{at::tensor({1.f, 3.f})}}),
         {ScalarStats({"largest"}, "")},
         {.tower_name = "Other",
          .tower_func = [](const at::Tensor& y) { named("largest", y.max()); },
          .inputs = {{.name = "y", .shape = {-1}}}}});
  EXPECT_THAT(history("largest"), ElementsAre(Pair(2, 3), Pair(4, 3)));
}

TEST_F(InferenceRunnerTest, UnknownFetchIsAnErrorAtSetup) {
  EXPECT_THAT(
      [&] { trainer_.setup({InferenceRunner(five_samples(), {ScalarStats({"mean_y"})})}); },
      ThrowsMessage<Error>(HasSubstr("[ScalarStats] no tensor, input or variable named 'mean_y' in "
                                     "'InferenceTower'. Did you mean 'mean_x'?")));
}

TEST_F(InferenceRunnerTest, UnsuitableFetchIsAnErrorAtSetup) {
  EXPECT_THAT([&] { trainer_.setup({InferenceRunner(five_samples(), {ScalarStats({"label"})})}); },
              ThrowsMessage<Error>(HasSubstr("'label' is not a scalar")));
}

TEST_F(InferenceRunnerTest, WrongNumberOfComponentsIsAnErrorBeforeTheFirstStep) {
  EXPECT_THAT(
      [&] {
        train({FromList({{at::zeros({2})}}), {ClassificationError()}});
      },
      ThrowsMessage<Error>(
          HasSubstr("a datapoint has 1 component, the input signature has 2 (x, label)")));
  EXPECT_EQ(trainer_.global_step(), 0);
}

TEST_F(InferenceRunnerTest, WrongTypeIsAnErrorBeforeTheFirstStep) {
  EXPECT_THROW(train({FromList({{at::zeros({2}), at::zeros({2})}}), {ClassificationError()}}),
               Error);
  EXPECT_EQ(trainer_.global_step(), 0);
}

TEST_F(InferenceRunnerTest, NeedsData) {
  EXPECT_THROW(InferenceRunner(DataFlowPtr(), {ClassificationError()}), Error);
  EXPECT_THROW(InferenceRunner(InputSourcePtr(), {ClassificationError()}), Error);
}

TEST_F(InferenceRunnerTest, NeedsAnInferencer) {
  EXPECT_THAT([] { InferenceRunner(five_samples(), {}); },
              ThrowsMessage<Error>(HasSubstr("there is no inferencer")));
}

}  // namespace
}  // namespace tensorpack
