// SPDX-License-Identifier: Apache-2.0
// Replay gives the numbers of eager, bit for bit, over every model and optimizer.
#include "tests/support/zoo.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/recorder.h"
#include "tensorpack/session/session.h"

namespace tensorpack {
namespace {

constexpr int kSteps = 25;

struct Case {
  const ZooModel* model;
  ZooOptimizer optimizer;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.model->name; }

struct Outcome {
  std::vector<std::vector<at::Tensor>> losses;  // of each step; a GAN has two
  std::map<std::string, at::Tensor> variables;
};

Outcome train(const Case& c, ExecutorKind executor) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(3);
  Graph graph({.seed = 1});
  const Op op = define_training(graph, *c.model, c.optimizer);
  graph.finalize();
  Session session(graph, {.executor = executor});
  Fetches losses;
  for (const auto& [name, spec] : op.outputs()) {
    if (name.starts_with("loss")) losses.push_back(name);
  }
  Outcome outcome;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<at::Tensor> batch = c.model->make_batch(step);
    Feeds feeds;
    for (size_t i = 0; i < batch.size(); ++i) feeds[c.model->inputs[i].name] = batch[i];
    outcome.losses.push_back(session.run(op, losses, feeds));
  }
  for (const Variable& variable : graph.variables().all()) {
    outcome.variables.emplace(variable.name, variable.tensor.detach().clone());
  }
  return outcome;
}

class ZooTest : public testing::TestWithParam<Case> {};

TEST_P(ZooTest, ReplayEqualsEagerBitwise) {
  const Outcome eager = train(GetParam(), ExecutorKind::kEager);
  const Outcome replay = train(GetParam(), ExecutorKind::kReplay);
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

// Batch norm in training mode, the workspaces of recurrent layers, our own update kernels: whatever
// writes to memory must be known to, or every pass over the trace would be wrong.
TEST_P(ZooTest, NoOperatorWritesUnannounced) {
  const Case& c = GetParam();
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

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const ZooModel& model : zoo()) {
    for (auto optimizer : {ZooOptimizer::kSgd, ZooOptimizer::kMomentum, ZooOptimizer::kAdam}) {
      cases.push_back({&model, optimizer});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, ZooTest, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<Case>& info) {
                           return info.param.model->name + to_string(info.param.optimizer);
                         });

}  // namespace
}  // namespace tensorpack
