// SPDX-License-Identifier: Apache-2.0
#include "examples/gan/gan_trainer.h"

#include <gmock/gmock.h>

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// g_loss = g d x, d_loss = -g d x: after a step g += lr d x and d -= lr g x, and the other way
// round.
gan::Model tiny_model() {
  return {
      .inputs = {{"x", {-1}}},
      .build_losses =
          [](const Tensor& x) {
            const auto one = [](const char* name) {
              return get_variable(name, {}, init::constant(1));
            };
            const Tensor product = (one("gen/w") * one("discrim/w") * x).mean();
            named("g_loss", product);
            named("d_loss", -product);
          },
      .g_optimizer = SGD({.lr = 0.5, .scope = "gen"}),
      .d_optimizer = SGD({.lr = 0.25, .scope = "discrim"}),
  };
}

FeedInput ones() { return FeedInput(FromList({{torch::ones({4})}})); }

// The names of the ops of each step: "d_op g_op | g_op".
class ListOps final : public Callback {
 public:
  explicit ListOps(std::vector<std::string>& steps) : steps_(steps) {}
  RunArgs before_run(RunContext& context) override {
    step_ += (step_.empty() ? "" : " ") + context.op().name();
    return {};
  }
  void trigger_step() override { steps_.push_back(std::exchange(step_, "")); }

 private:
  std::vector<std::string>& steps_;
  std::string step_;
};

std::vector<std::string> ops_of(gan::Periods periods) {
  gan::SeparateGANTrainer trainer(tiny_model(), ones(), periods);
  std::vector<std::string> steps;
  trainer.train({.callbacks = {ListOps(steps)}, .steps_per_epoch = 3, .max_epoch = 2});
  return steps;
}

TEST(GANTrainerTest, BothUpdatesComeFromOnePass) {
  gan::GANTrainer trainer(tiny_model(), ones());
  std::vector<std::string> steps;
  trainer.train({.callbacks = {ListOps(steps)}, .steps_per_epoch = 1, .max_epoch = 1});
  EXPECT_THAT(steps, ElementsAre("train_op"));
  EXPECT_EQ(trainer.global_step(), 1);
  EXPECT_EQ(trainer.variables().at("gen/w").tensor.item<double>(), 0.5);
  EXPECT_EQ(trainer.variables().at("discrim/w").tensor.item<double>(), 1.25)
      << "from the generator as it was before its update";
}

TEST(SeparateGANTrainerTest, PeriodsMeanWhatTheySay) {
  EXPECT_THAT(ops_of({}), ElementsAre("d_op g_op", "d_op g_op", "d_op g_op", "d_op g_op",
                                      "d_op g_op", "d_op g_op"));
  EXPECT_THAT(ops_of({.d_period = 2}),
              ElementsAre("d_op g_op", "g_op", "d_op g_op", "g_op", "d_op g_op", "g_op"));
  EXPECT_THAT(ops_of({.g_period = 4}),
              ElementsAre("d_op g_op", "d_op", "d_op", "d_op", "d_op g_op", "d_op"));
}

TEST(SeparateGANTrainerTest, StepsThatDoNothingAreAnError) {
  EXPECT_THAT([] { gan::SeparateGANTrainer(tiny_model(), ones(), {.d_period = 2, .g_period = 3}); },
              ThrowsMessage<Error>(HasSubstr("One of them must be 1")));
}

TEST(ClipDiscriminatorTest, HoldsAfterEveryRun) {
  gan::GANTrainer trainer(tiny_model(), ones());
  trainer.train({
      .callbacks = {gan::clip_discriminator(0.1)},
      .steps_per_epoch = 2,
      .max_epoch = 1,
  });
  EXPECT_FLOAT_EQ(trainer.variables().at("discrim/w").tensor.item<float>(), 0.1F);
  EXPECT_NE(trainer.variables().at("gen/w").tensor.item<float>(), 0.1F);
}

}  // namespace
}  // namespace tensorpack
