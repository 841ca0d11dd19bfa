// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/run_op.h"

#include <gmock/gmock.h>

#include "tests/support/fake_trainer.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

class RunOpTest : public testing::Test {
 protected:
  // How often the op runs in two epochs of three steps.
  int runs(RunOpOptions options) {
    int count = 0;
    FakeTrainer trainer({.steps_per_epoch = 3, .max_epoch = 2});
    trainer.train({RunOp(Op::host("count", [&] { ++count; }), options)});
    EXPECT_EQ(trainer.global_step(), 6);
    return count;
  }
};

TEST_F(RunOpTest, RunsBeforeTrainingAndWhenTriggered) { EXPECT_EQ(runs({}), 3); }

TEST_F(RunOpTest, RunsOnlyWhenAsked) {
  EXPECT_EQ(runs({.run_as_trigger = false}), 1);
  EXPECT_EQ(runs({.run_before = false}), 2);
  EXPECT_EQ(runs({.run_before = false, .run_as_trigger = false, .run_step = true}), 6);
}

TEST_F(RunOpTest, DefinesItsOpAtSetup) {
  FakeTrainer trainer;
  trainer.train({RunOp([](Graph& graph) {
    return graph.define({.name = "reset", .body = [&graph](const auto&) -> NamedTensors {
                           graph.variables().at("w").tensor.zero_();
                           return {};
                         }});
  })});
  EXPECT_EQ(trainer.variables().at("w").tensor.item<float>(), 0);
}

TEST_F(RunOpTest, AnEmptyOpIsAnErrorAtSetup) {
  EXPECT_THAT([] { FakeTrainer().setup({RunOp(Op())}); },
              ThrowsMessage<Error>(HasSubstr("[RunOp] the op is empty")));
}

}  // namespace
}  // namespace tensorpack
