// SPDX-License-Identifier: Apache-2.0
// Replay gives the numbers of eager over every model and optimizer: bit for bit without kernels
// that round in another way.
#include "tests/support/zoo.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/recorder.h"
#include "tensorpack/session/session.h"

namespace tensorpack {
namespace {

constexpr int kSteps = 25;

class ZooTest : public testing::TestWithParam<ZooCase> {};

TEST_P(ZooTest, ReplayEqualsEagerBitwise) {
  const ZooOutcome eager = train(GetParam(), kSteps, {.executor = ExecutorKind::kEager});
  const ZooOutcome replay =
      train(GetParam(), kSteps, {.executor = ExecutorKind::kReplay, .fusion = Fusion::kExact});
  for (int step = 0; step < kSteps; ++step) {
    ASSERT_FALSE(eager.losses[step].empty());
    for (size_t i = 0; i < eager.losses[step].size(); ++i) {
      ASSERT_TRUE(at::equal(eager.losses[step][i], replay.losses[step][i]))
          << "loss " << i << " of step " << step << ": " << eager.losses[step][i].item<double>()
          << " and " << replay.losses[step][i].item<double>();
    }
  }
  EXPECT_FALSE(at::equal(replay.losses.front()[0], replay.losses.back()[0]));
  for (const auto& [name, value] : eager.variables) {
    EXPECT_TRUE(at::equal(value, replay.variables.at(name))) << name;
    EXPECT_FALSE(at::isnan(value).any().item<bool>()) << name;
  }
}

TEST_P(ZooTest, KernelsOfOursTrainAlike) {
  constexpr int kFewSteps = 8;
  const ZooOutcome plain = train(GetParam(), kFewSteps, {.fusion = Fusion::kNone});
  const ZooOutcome fused = train(GetParam(), kFewSteps, {});
  for (int step = 0; step < kFewSteps; ++step) {
    for (size_t i = 0; i < plain.losses[step].size(); ++i) {
      EXPECT_TRUE(at::allclose(plain.losses[step][i], fused.losses[step][i], 1e-3, 1e-4))
          << "loss " << i << " of step " << step << ": " << plain.losses[step][i].item<double>()
          << " and " << fused.losses[step][i].item<double>();
    }
  }
}

// Batch norm in training mode, the workspaces of recurrent layers, our own update kernels: whatever
// writes to memory must be known to, or every pass over the trace would be wrong.
TEST_P(ZooTest, NoOperatorWritesUnannounced) {
  const ZooCase& c = GetParam();
  Graph graph({.seed = 1});
  const Op op = define_training(graph, *c.model, c.optimizer);
  RecordOptions options{.inputs = c.model->make_batch(0), .check_undeclared_writes = true};
  for (const TensorSpec& spec : c.model->inputs) options.input_names.push_back(spec.name);
  for (const Variable& variable : graph.variables().all()) {
    options.variables.emplace_back(variable.name, variable.tensor);
  }
  options.function = [&] { return op.state().body(options.inputs); };
  EXPECT_THAT(record(options).remarks,
              testing::Not(testing::Contains(testing::HasSubstr("undeclared"))));
}

INSTANTIATE_TEST_SUITE_P(All, ZooTest, testing::ValuesIn(all_zoo_cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tensorpack
