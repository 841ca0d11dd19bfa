// SPDX-License-Identifier: Apache-2.0
// What is verified is what runs: whatever a lowering does wrong is found.
#include "tensorpack/session/lowering.h"

#include <gmock/gmock.h>

#include "tensorpack/session/program_executor.h"
#include "tests/session/models.h"
#include "tests/support/throws.h"
#include "tests/support/wrong_runner.h"

namespace tensorpack {
namespace {

// Turns the first addition into a subtraction.
class WrongPass final : public Lowering {
 public:
  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    Lowering::optimize(op, trace, fetches);
    static const auto sub = c10::Dispatcher::singleton().findSchemaOrThrow("aten::sub", "Tensor");
    for (Node& node : trace.nodes) {
      if (node.op_name() != "aten::add.Tensor") continue;
      node.op = sub;
      return;
    }
  }
};

class WrongRunner final : public Lowering {
 public:
  std::unique_ptr<ProgramRunner> make_runner(
      const Op& op, const Trace& trace, const std::vector<std::string>& fetches) const override {
    return std::make_unique<WrongOnceSettled>(Lowering::make_runner(op, trace, fetches));
  }
};

// An update that is lost, as by a pass that takes it for dead code.
class LostUpdate final : public Lowering {
 public:
  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    Lowering::optimize(op, trace, fetches);
    std::vector<char> remove(trace.nodes.size(), 0);
    for (size_t i = 0; i < trace.nodes.size(); ++i) remove[i] = !trace.nodes[i].writes.empty();
    trace.erase_nodes(remove);
  }
};

Op define_sum(Graph& graph) {
  return define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    return {{"y", x.exp() + x}};
  });
}

TEST(LoweringTest, AWrongPassIsFoundBeforeItIsUsed) {
  Graph graph;
  const Op op = define_sum(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<WrongPass>());
  EXPECT_ERROR(executor.prepare(op, {batch_of(4)}, {"y"}),
               "[verify 'step'] the program and the function disagree on the tensor 'y' for "
               "another batch, though every recorded operator agrees");
}

TEST(LoweringTest, ARunnerThatGoesWrongOnceItIsSettledIsFound) {
  Graph graph;
  const Op op = define_sum(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<WrongRunner>());
  EXPECT_ERROR(executor.prepare(op, {batch_of(4)}, {"y"}), "disagree on the tensor 'y'");
}

TEST(LoweringTest, AnUpdateThatIsLostIsFoundThoughNothingIsFetched) {
  Graph graph;
  const Op op = define_regression(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<LostUpdate>());
  EXPECT_ERROR(executor.prepare(op, {batch_of(4)}, {}), "disagree on the variable 'W'");
}

TEST(LoweringTest, EverySetOfFetchesIsVerified) {
  Graph graph;
  const Op op = define_sum(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<WrongPass>());
  executor.prepare(op, {batch_of(4)}, {});  // nothing is left of it
  EXPECT_ERROR(executor.prepare(op, {batch_of(4)}, {"y"}), "disagree on the tensor 'y'");
}

TEST(LoweringTest, FailedPreparationLeavesVariablesAsTheyWere) {
  Graph graph;
  const Op op = define_regression(graph);
  const at::Tensor before = graph.variables().at("W").tensor.detach().clone();
  ProgramExecutor executor(graph, {}, std::make_unique<LostUpdate>());
  EXPECT_THROW(executor.prepare(op, {batch_of(4)}, {}), Error);
  EXPECT_TRUE(at::equal(graph.variables().at("W").tensor, before));
}

}  // namespace
}  // namespace tensorpack
