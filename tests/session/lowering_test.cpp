// SPDX-License-Identifier: Apache-2.0
// What is verified is what runs: whatever a lowering does wrong is found.
#include "tensorpack/session/lowering.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <limits>
#include <map>

#include "tensorpack/session/program_executor.h"
#include "tensorpack/session/verify.h"
#include "tensorpack/utils/find_operator.h"
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
    static const auto sub = find_operator("aten::sub", "Tensor");
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

at::Tensor sum_of_rows(const at::Tensor& x) { return x.sum(0); }

// As another kernel would, which begins with the last row.
at::Tensor sum_of_rows_backwards(const at::Tensor& x) {
  at::Tensor sum = at::zeros({x.size(1)});
  for (int64_t row = x.size(0); row-- > 0;) sum += x[row];
  return sum;
}

at::Tensor exact_sum_of_rows(const at::Tensor& x) {
  return x.to(at::kDouble).sum(0).to(x.scalar_type());
}

// Wrong, by a hundredth.
at::Tensor sum_of_rows_without_last(const at::Tensor& x) { return x.slice(0, 0, -1).sum(0); }

at::Tensor sum_of_rows_or_nan(const at::Tensor& x) {
  at::Tensor sum = sum_of_rows_backwards(x);
  sum[0] = std::numeric_limits<float>::quiet_NaN();
  return sum;
}

TORCH_LIBRARY(tensorpack_lowering_test, library) {
  library.def("sum_of_rows(Tensor x) -> Tensor");
  library.impl("sum_of_rows", c10::DispatchKey::CPU, TORCH_FN(sum_of_rows));
  library.def("exact_sum_of_rows(Tensor x) -> Tensor");
  library.impl("exact_sum_of_rows", c10::DispatchKey::CPU, TORCH_FN(exact_sum_of_rows));
  library.def("sum_of_rows_without_last(Tensor x) -> Tensor");
  library.impl("sum_of_rows_without_last", c10::DispatchKey::CPU,
               TORCH_FN(sum_of_rows_without_last));
  library.def("sum_of_rows_or_nan(Tensor x) -> Tensor");
  library.impl("sum_of_rows_or_nan", c10::DispatchKey::CPU, TORCH_FN(sum_of_rows_or_nan));
  library.def("sum_of_rows_backwards(Tensor x) -> Tensor");
  library.impl("sum_of_rows_backwards", c10::DispatchKey::CPU, TORCH_FN(sum_of_rows_backwards));
}

// Puts operators in the place of others.
class Replacing final : public Lowering {
 public:
  explicit Replacing(std::map<std::string, std::string> names) : names_(std::move(names)) {}

  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    Lowering::optimize(op, trace, fetches);
    for (Node& node : trace.nodes) {
      const auto found = names_.find(node.op_name());
      if (found != names_.end()) node.op = find_operator(found->second.c_str());
    }
  }

 private:
  std::map<std::string, std::string> names_;
};

const std::map<std::string, std::string> kOtherSums = {
    {"tensorpack_lowering_test::sum_of_rows", "tensorpack_lowering_test::sum_of_rows_backwards"},
    {"tensorpack_lowering_test::exact_sum_of_rows",
     "tensorpack_lowering_test::sum_of_rows_backwards"}};

// Other operators, and a runner that does not do what they do.
class RoundingAndWrong final : public Lowering {
 public:
  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    Replacing(kOtherSums).optimize(op, trace, fetches);
  }
  std::unique_ptr<ProgramRunner> make_runner(
      const Op& op, const Trace& trace, const std::vector<std::string>& fetches) const override {
    return std::make_unique<WrongOnceSettled>(Lowering::make_runner(op, trace, fetches));
  }
};

// A bias before a batch norm: its gradient is nothing but rounding, of which its update is the
// sign.
Op define_bias_before_norm(Graph& graph) {
  return define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    const at::Tensor weight = get_variable("weight", {3, 32}, init::normal(1));
    const at::Tensor bias = get_variable("bias", {32});
    const at::Tensor y = x.matmul(weight) + bias;
    const at::Tensor normed = (y - y.mean(0)) / (y.var(0, false) + 1e-5).sqrt();
    const at::Tensor cost = (normed.tanh() + normed).pow(2).sum();
    const auto gradients = torch::autograd::grad({cost}, {weight, y});
    at::NoGradGuard no_grad;
    static const auto sum = find_operator("tensorpack_lowering_test::sum_of_rows")
                                .typed<at::Tensor(const at::Tensor&)>();
    weight.sub_(gradients[0], 1e-3);
    bias.sub_(sum.call(gradients[1]).sign(), 1e-3);
    return {{"cost", cost}};
  });
}

// A gradient of which two numbers are zero, but for rounding. An update goes by their sign, and a
// maximum by which of the two is larger.
Op define_sign_of_sum(Graph& graph) {
  return define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    const at::Tensor weight = get_variable("weight", {3}, init::ones());
    static const auto sum = find_operator("tensorpack_lowering_test::exact_sum_of_rows")
                                .typed<at::Tensor(const at::Tensor&)>();
    at::NoGradGuard no_grad;
    const at::Tensor gradient = sum.call(x);
    weight.sub_(gradient.sign(), 1e-3);
    return {{"largest", gradient.slice(0, 0, 2).argmax().to(at::kFloat)}};
  });
}

at::Tensor rows_that_cancel() {
  const at::Tensor half = at::randn({50, 3}, at::detail::createCPUGenerator(1));
  const at::Tensor rows = at::cat({half, -half.flip(0).roll(7, 0)});
  rows.select(1, 2).fill_(1);
  return rows;
}

at::Tensor many_rows() { return at::randn({100, 3}, at::detail::createCPUGenerator(1)); }

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

TEST(LoweringTest, AProgramMayRoundWhatIsNothingButRounding) {
  Graph graph;
  const Op op = define_bias_before_norm(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<Replacing>(kOtherSums));
  executor.prepare(op, {many_rows()}, {"cost"});
}

TEST(LoweringTest, WhatIsWrongIsFoundBesideWhatIsNothingButRounding) {
  Graph graph;
  const Op op = define_bias_before_norm(graph);
  auto wrong = kOtherSums;
  wrong.emplace("aten::tanh_backward", "aten::sigmoid_backward");
  ProgramExecutor executor(graph, {}, std::make_unique<Replacing>(wrong));
  EXPECT_ERROR(executor.prepare(op, {many_rows()}, {"cost"}), "disagree on the variable 'weight'");
}

TEST(LoweringTest, AProgramMayRoundWhatAnotherOperatorMagnifies) {
  const at::Tensor rows = rows_that_cancel(), verified = another_batch({rows})[0];
  ASSERT_TRUE(at::equal(exact_sum_of_rows(verified).slice(0, 0, 2), at::zeros({2})));
  ASSERT_FALSE(at::equal(sum_of_rows_backwards(verified).slice(0, 0, 2), at::zeros({2})));
  Graph graph;
  const Op op = define_sign_of_sum(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<Replacing>(kOtherSums));
  executor.prepare(op, {rows}, {"largest"});
}

TEST(LoweringTest, AnOperatorThatIsWrongIsFoundAndNamed) {
  for (const std::string wrong : {"sum_of_rows_without_last", "sum_of_rows_or_nan"}) {
    Graph graph;
    const Op op = define_sign_of_sum(graph);
    const std::string name = "tensorpack_lowering_test::" + wrong;
    ProgramExecutor executor(graph, {},
                             std::make_unique<Replacing>(std::map<std::string, std::string>{
                                 {"tensorpack_lowering_test::exact_sum_of_rows", name}}));
    EXPECT_ERROR(executor.prepare(op, {rows_that_cancel()}, {"largest"}),
                 "what the library made of them is wrong, first at node 0, " + name);
  }
}

TEST(LoweringTest, ARunnerThatGoesWrongIsFoundThoughItsOperatorsRound) {
  Graph graph;
  const Op op = define_sign_of_sum(graph);
  ProgramExecutor executor(graph, {}, std::make_unique<RoundingAndWrong>());
  EXPECT_ERROR(executor.prepare(op, {rows_that_cancel()}, {"largest"}), "disagree on the ");
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
