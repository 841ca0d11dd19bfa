// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/export/export_model.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tensorpack/export/exported_model.h"
#include "tensorpack/export/exported_program.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

using at::Tensor;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

PredictConfig config(Tensor (*function)(const Tensor&), TensorSpec input = {"x", {-1, 4}}) {
  return {
      .inputs = {std::move(input)},
      .tower_func = [function](const Tensor& x) { named("y", function(x)); },
      .output_names = {"y"},
      .graph = {.seed = 1},
  };
}

// Exports, loads, and compares with the model on batches of these sizes.
void expect_equal(Tensor (*function)(const Tensor&), const std::vector<int64_t>& sizes,
                  const TensorSpec& input = {"x", {-1, 4}}) {
  const TempDir dir;
  export_model(config(function, input), dir / "model");
  const ExportedModel model = load_exported_model(dir / "model");
  const OfflinePredictor predict(config(function, input));
  for (int64_t size : sizes) {
    Shape shape = input.shape;
    std::replace(shape.begin(), shape.end(), int64_t{-1}, size);
    const Tensor x = at::rand(shape);
    EXPECT_TRUE(at::equal(model(x)[0], predict(x)[0])) << size;
  }
}

auto refusal(Tensor (*function)(const Tensor&), TensorSpec input = {"x", {-1, 4}}) {
  return [=] { export_program(config(function, input)); };
}

TEST(ExportModelTest, SizesThatFollowFromTheBatchAreComputedAnew) {
  expect_equal([](const Tensor& x) { return x.view({x.size(0) * 2, 2}).sum(1); }, {1, 2, 64});
  expect_equal([](const Tensor& x) { return at::cat({x, at::zeros({x.size(0) + 3, 4})}); }, {1, 9});
  expect_equal([](const Tensor& x) { return x / x.size(0) + at::arange(x.size(0)).unsqueeze(1); },
               {1, 2, 9});
  expect_equal([](const Tensor& x) { return x.repeat({1, x.size(0)}); }, {1, 3});
}

TEST(ExportModelTest, ADefaultThatIsNoInputBecomesAPartOfTheProgram) {
  const auto recurrent = [](std::vector<std::string> inputs) -> PredictConfig {
    return {.inputs = {{"x", {-1, 4}}, {.name = "state", .shape = {-1, 4}, .default_value = 0.5}},
            .tower_func = [](const Tensor& x,
                             const Tensor& state) { named("y", (x + 2 * state).tanh()); },
            .input_names = std::move(inputs),
            .output_names = {"y"}};
  };
  const TempDir dir;
  export_model(recurrent({"x"}), dir / "of_x");
  export_model(recurrent({}), dir / "of_both");
  const ExportedModel of_x = load_exported_model(dir / "of_x");
  const ExportedModel of_both = load_exported_model(dir / "of_both");
  for (const int64_t size : {1, 3, 8}) {
    const Tensor x = at::rand({size, 4});
    EXPECT_TRUE(at::equal(of_x(x)[0], (x + 1).tanh())) << size;
    EXPECT_TRUE(at::equal(of_both(x, at::ones({size, 4}))[0], (x + 2).tanh())) << size;
  }
}

TEST(ExportModelTest, TheBatchNeedNotComeFirst) {
  expect_equal(
      [](const Tensor& x) {
        return x.transpose(0, 1).reshape({-1, 12}).tanh();
      },
      {1, 5}, {"x", {3, -1, 4}});
}

TEST(ExportModelTest, AModelWithoutABatchIsExportedAsItIs) {
  expect_equal([](const Tensor& x) { return x.mm(x); }, {3}, {"x", {4, 4}});
}

TEST(ExportModelTest, WorkInPlaceStaysInPlace) {
  expect_equal(
      [](const Tensor& x) {
        Tensor y = x.clone();
        y.narrow(1, 0, 2).mul_(2);
        return y.view({-1}).add_(y.view({-1}));
      },
      {1, 5});
}

TEST(ExportModelTest, WeightsKeepTheirLayout) {
  const TempDir dir;
  PredictConfig image =
      config([](const Tensor& x) { return Conv2D("conv", x, {.filters = 8, .kernel_size = 3}); },
             {"x", {-1, 4, 8, 8}});
  const ExportedProgram program = export_program(std::move(image));
  const auto is_weight = [](const ExportedConstant& c) { return c.name == "conv/W"; };
  const auto weight = std::find_if(program.constants.begin(), program.constants.end(), is_weight);
  ASSERT_NE(weight, program.constants.end());
  EXPECT_TRUE(weight->tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
  expect_equal(
      [](const Tensor& x) {
        return Conv2D("conv", x, {.filters = 8, .kernel_size = 3}).flatten(1);
      },
      {1, 3}, {"x", {-1, 4, 8, 8}});
}

TEST(ExportModelTest, SaysWhatItTakesAndGives) {
  const TempDir dir;
  PredictConfig two = {
      .inputs = {{"x", {-1, 4}}, {"label", {-1}, at::kLong}},
      .tower_func =
          [](const Tensor& x, const Tensor& label) {
            named("cost", named("logits", FullyConnected("fc", x, {.units = 3})).sum() * label);
          },
      .output_names = {"logits", "fc/output"},
  };
  export_model(std::move(two), dir / "model");
  const ExportedModel model = load_exported_model(dir / "model");
  ASSERT_EQ(model.inputs().size(), 1U);  // the label is not needed
  EXPECT_EQ(model.inputs()[0].name, "x");
  EXPECT_THAT(model.inputs()[0].shape, ElementsAre(-1, 4));
  EXPECT_THAT(model.output_names(), ElementsAre("logits", "fc/output"));
  EXPECT_THAT([&] { model(at::zeros({2, 5})); }, ThrowsMessage<Error>(HasSubstr("'x'")));
  EXPECT_THAT(
      [&] {
        model(at::zeros({2, 4}), at::zeros({2}));
      },
      ThrowsMessage<Error>(HasSubstr("takes 1")));
}

TEST(ExportModelTest, InputsOfDifferentBatchesAreAnError) {
  const TempDir dir;
  export_model(
      {
          .inputs = {{"a", {-1, 4}}, {"b", {4, -1}}},
          .tower_func = [](const Tensor& a, const Tensor& b) { named("y", a + b.t()); },
          .output_names = {"y"},
      },
      dir / "model");
  const ExportedModel model = load_exported_model(dir / "model");
  EXPECT_EQ(model(at::ones({3, 4}), at::ones({4, 3}))[0].sum().item<double>(), 24);
  EXPECT_THAT(
      [&] {
        model(at::ones({3, 4}), at::ones({4, 1}));
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("'a' has a batch of 3"), HasSubstr("one of 1"))));
}

TEST(ExportModelTest, MultiplesOfATrialBatchAreEnough) {
  const TempDir dir;
  const auto pairs = [](const Tensor& x) { return x.view({x.size(0) / 2, 8}).sum(1); };
  const TensorSpec input{"x", {-1, 4}, at::kFloat, {2, 4}};
  export_model(config(pairs, input), dir / "model");
  const ExportedModel model = load_exported_model(dir / "model");
  EXPECT_TRUE(at::equal(model(at::ones({6, 4}))[0], at::full({3}, 8.0F)));
  EXPECT_THAT(
      [&] {
        model(at::ones({7, 4}));
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("multiple of 2"), HasSubstr("one of 7"))));
  // A model that does not need them takes all.
  expect_equal([](const Tensor& x) { return x.view({x.size(0) * 4}); }, {1, 7}, input);
}

TEST(ExportModelTest, RoundingTheBatchIsRefusedByName) {
  const auto half = [](const Tensor& x) {
    const VariableScope scope("first");
    return x.narrow(0, 0, (x.size(0) + 1) / 2);
  };
  EXPECT_THAT(refusal(half),
              ThrowsMessage<Error>(HasSubstr("aten::slice.Tensor in layer 'first'")));
  const auto quarter = [](const Tensor& x) {
    const VariableScope scope("first");
    return x.narrow(0, 0, x.size(0) / 4 + 1);
  };
  EXPECT_THAT(refusal(quarter),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::slice.Tensor in layer 'first'"),
                                         HasSubstr("'end'"), HasSubstr("batch size"))));
}

TEST(ExportModelTest, BranchesOnTheBatchAreRefusedByName) {
  const auto branch = [](const Tensor& x) { return x.size(0) > 4 ? x.exp() : x.log(); };
  EXPECT_THAT(refusal(branch),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::log"), HasSubstr("aten::exp"))));
  const auto loop = [](const Tensor& x) {
    Tensor y = x;
    for (int64_t i = 0; i < x.size(0); ++i) y = y + 1;
    return y;
  };
  EXPECT_THAT(refusal(loop), ThrowsMessage<Error>(HasSubstr("operators with a batch of")));
}

TEST(ExportModelTest, NumbersOfTheHostThatFollowFromTheBatchAreRefused) {
  const auto reciprocal = [](const Tensor& x) {
    return x * (1.0 / static_cast<double>(x.size(0)));
  };
  EXPECT_THAT(refusal(reciprocal),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::mul."), HasSubstr("batch size"))));
  const auto table = [](const Tensor& x) {
    return x + at::tensor(std::vector<float>(static_cast<size_t>(x.size(0)), 1)).unsqueeze(1);
  };
  EXPECT_THAT(refusal(table), ThrowsMessage<Error>(HasSubstr("not made by operators")));
}

TEST(ExportModelTest, RandomNumbersAreRefusedByName) {
  const auto noisy = [](const Tensor& x) {
    const VariableScope scope("noise");
    return x + at::randn({4});
  };
  EXPECT_THAT(refusal(noisy),
              ThrowsMessage<Error>(AllOf(HasSubstr("aten::randn"), HasSubstr("'noise'"))));
  // Those that the output does not need are left out, and dropout draws none in prediction.
  expect_equal(
      [](const Tensor& x) {
        named("noise", at::randn({4}));
        return Dropout("drop", x, {.rate = 0.5});
      },
      {3});
}

TEST(ExportModelTest, WritingAVariableIsRefusedByName) {
  const auto counting = [](const Tensor& x) {
    Tensor count = get_variable("count", {}, {.role = VariableRole::kModel});
    at::NoGradGuard no_grad;
    return x + count.add_(1);
  };
  EXPECT_THAT(refusal(counting),
              ThrowsMessage<Error>(AllOf(HasSubstr("'count'"), HasSubstr("no state"))));
}

TEST(ExportModelTest, DecisionsOnTheHostAreFoundOut) {
  const auto peeking = [](const Tensor& x) {
    const bool is_large = x.size(0) == 2 && x.data_ptr<float>()[1] > 0.5;
    return is_large ? x + 1 : x + 2;
  };
  EXPECT_THAT(refusal(peeking), ThrowsMessage<Error>(HasSubstr("other numbers for 'y'")));
}

TEST(ExportModelTest, SeveralOpenDimensionsNeedASize) {
  const auto same = [](const Tensor& x) { return x.exp(); };
  EXPECT_THAT(refusal(same, {"x", {-1, 3, -1}}),
              ThrowsMessage<Error>(AllOf(HasSubstr("'x'"), HasSubstr("trial_shape"))));
  EXPECT_NO_THROW(refusal(same, {"x", {-1, 3, -1}, at::kFloat, {2, 3, 5}})());
}

TEST(ExportModelTest, OutputsAreComputed) {
  PredictConfig wrong = config([](const Tensor& x) { return x.exp(); });
  wrong.output_names = {"x"};
  EXPECT_THAT([&] { export_program(std::move(wrong)); },
              ThrowsMessage<Error>(HasSubstr("'x' is an input")));
}

TEST(ExportModelTest, AFailedExportWritesNothing) {
  const TempDir dir;
  EXPECT_THROW(
      export_model(config([](const Tensor& x) { return x + at::randn({4}); }), dir / "model"),
      Error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(ExportModelTest, ThreadsMayShareAModel) {
  const TempDir dir;
  export_model(config([](const Tensor& x) { return FullyConnected("fc", x, {.units = 3}); }),
               dir / "model");
  const ExportedModel model = load_exported_model(dir / "model");
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  const Tensor expected = model(at::ones({1, 4}))[0];
  for (int64_t size = 1; size <= 4; ++size) {
    threads.emplace_back([&, size] {
      for (int i = 0; i < 20; ++i) {
        const Tensor found = model(at::ones({size, 4}))[0];
        if (!at::allclose(found, expected.expand({size, 3}))) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

PredictConfig trained_config(NamedTensors values) {
  return {
      .inputs = {{"x", {-1, 4}}},
      .tower_func =
          [](const Tensor& x) {
            const auto averaged = use_moving_averages();
            named("y", x * get_variable("w", {}) + get_variable("b", {}));
          },
      .session_init = DictRestore(std::move(values)),
      .output_names = {"y"},
  };
}

TEST(ExportModelTest, AveragesAreExportedWhereTheFunctionUsesThem) {
  const TempDir dir;
  export_model(trained_config({{"w", at::full({}, 7.0F)},
                               {"w/MovingAverage", at::full({}, 2.0F)},
                               {"b", at::full({}, 1.0F)}}),
               dir / "model");
  const ExportedModel model = load_exported_model(dir / "model");
  EXPECT_TRUE(at::equal(model(at::ones({3, 4}))[0], at::full({3, 4}, 3.0F)));
}

TEST(ExportModelTest, WhatLacksItsWeightsOrAveragesIsNotExported) {
  const TempDir dir;
  EXPECT_THAT(
      [&] {
        export_model(trained_config({{"w", at::ones({})}, {"b", at::ones({})}}), dir / "model");
      },
      ThrowsMessage<Error>(HasSubstr("has a moving average of no variable")));
  PredictConfig headless = config([](const Tensor& x) {
    return FullyConnected("head", FullyConnected("body", x, {.units = 4}), {.units = 1});
  });
  headless.session_init = DictRestore({{"body/W", at::ones({4, 4})}, {"body/b", at::zeros({4})}});
  EXPECT_THAT(
      [&] { export_model(std::move(headless), dir / "model"); },
      ThrowsMessage<Error>(HasSubstr("2 variables that the outputs (y) need: head/W, head/b")));
  EXPECT_FALSE(std::filesystem::exists(dir / "model"));
}

}  // namespace
}  // namespace tensorpack
