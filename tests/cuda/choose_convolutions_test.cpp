// SPDX-License-Identifier: Apache-2.0
// Convolutions become operators that choose their kernels, and libtorch need not choose any.
#include <ATen/Context.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/cuda/convolution_plan.h"
#include "tensorpack/cuda/first_choice.h"
#include "tensorpack/cuda/kernels/convolution.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::ElementsAre;
using testing::Not;

// A convolution, what it is given, and its gradients.
struct Net {
  at::Tensor image = at::randn({2, 8, 9, 7}).contiguous(at::MemoryFormat::ChannelsLast);
  at::Tensor weight = at::randn({6, 8, 3, 3});
  at::Tensor bias = at::randn({6});
  std::vector<int64_t> stride = {1, 1}, padding = {1, 1}, dilation = {1, 1};
  bool transposed = false;
  std::vector<int64_t> output_padding = {0, 0};
  int64_t groups = 1;

  Trace step() const {
    return trace_of({image}, {weight, bias}, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor x = in[0].detach().set_requires_grad(true);
      const at::Tensor w = weight.detach().set_requires_grad(true);
      const at::Tensor b = bias.detach().set_requires_grad(true);
      const at::Tensor y =
          at::convolution(x, w, b, stride, padding, dilation, transposed, output_padding, groups);
      const auto gradients = torch::autograd::grad({y.square().sum()}, {x, w, b});
      return {{"y", y}, {"x", gradients[0]}, {"w", gradients[1]}, {"b", gradients[2]}};
    });
  }

  void expect_chosen() const {
    Trace trace = step();
    const Tensors expected = outcome_of(trace, {image}, {});
    EXPECT_EQ(choose_convolutions(trace, at::kCPU), 2);
    EXPECT_EQ(count(trace, "tensorpack::convolution"), 1);
    EXPECT_EQ(count(trace, "tensorpack::convolution_backward"), 1);
    EXPECT_EQ(count(trace, "aten::convolution"), 0);
    EXPECT_EQ(count(trace, "aten::convolution_backward"), 0);
    expect_close(expected, outcome_of(trace, {image}, {}));
  }

  void expect_left_alone() const {
    Trace trace = step();
    EXPECT_EQ(choose_convolutions(trace, at::kCPU), 0);
    EXPECT_EQ(count(trace, "aten::convolution"), 1);
  }
};

TEST(ChooseConvolutionsTest, BothWaysInBothFormats) {
  Net net;
  net.expect_chosen();
  net.stride = {2, 1};
  net.padding = {0, 2};
  net.dilation = {2, 1};
  net.expect_chosen();
  net.image = at::randn({2, 8, 9, 7});
  net.expect_chosen();
}

TEST(ChooseConvolutionsTest, TransposedOnes) {
  Net net{.weight = at::randn({8, 6, 3, 3}), .stride = {2, 2}, .transposed = true};
  net.expect_chosen();
  net.output_padding = {1, 1};
  net.expect_chosen();
}

TEST(ChooseConvolutionsTest, TheGradientsThatAreWantedAlone) {
  const Net net;
  Trace trace = trace_of({net.image}, {net.weight}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor w = net.weight.detach().set_requires_grad(true);
    const at::Tensor y = at::conv2d(in[0], w, {}, 1, 1);
    return {{"w", torch::autograd::grad({y.square().sum()}, {w})[0]}};
  });
  const Tensors expected = outcome_of(trace, {net.image}, {});
  EXPECT_EQ(choose_convolutions(trace, at::kCPU), 2);
  for (const Node& node : trace.nodes) {
    if (node.op.operator_name().name != "tensorpack::convolution_backward") continue;
    EXPECT_EQ(node.arguments[8].literal.toBoolList().vec(),
              (std::vector<bool>{false, true, false}));
  }
  expect_close(expected, outcome_of(trace, {net.image}, {}));
}

TEST(ChooseConvolutionsTest, AreToldOfWorkBesideThem) {
  const Tensors weights = {at::randn({8, 8, 3, 3}), at::randn({8, 8, 3, 3}),
                           at::randn({8, 8, 3, 3})};
  Trace trace =
      trace_of({at::randn({2, 8, 9, 7})}, weights, [&](const Tensors& in) -> NamedTensors {
        Tensors variables;
        at::Tensor y = in[0];
        for (const at::Tensor& weight : weights) {
          variables.push_back(weight.detach().set_requires_grad(true));
          y = at::conv2d(y, variables.back(), {}, 1, 1).tanh();
        }
        const auto gradients = torch::autograd::grad({y.sum()}, variables);
        return {{"sum", gradients[0].sum() + gradients[1].sum() + gradients[2].sum()}};
      });
  use_side_stream(trace, at::kCPU);
  choose_convolutions(trace, at::kCPU);
  std::vector<bool> inputs_are_beside;
  for (const Node& node : trace.nodes) {
    if (node.op.operator_name().name != "tensorpack::convolution_backward") continue;
    if (!node.arguments[8].literal.toBoolList().get(0)) continue;
    inputs_are_beside.push_back(node.arguments[10].literal.toBool());
  }
  EXPECT_THAT(inputs_are_beside, ElementsAre(true, true));
  // In the order that it was recorded in, nothing is.
  Trace alone = Net().step();
  choose_convolutions(alone, at::kCPU);
  for (const Node& node : alone.nodes) {
    if (node.op.operator_name().name != "tensorpack::convolution_backward") continue;
    EXPECT_FALSE(node.arguments[10].literal.toBool());
  }
}

TEST(ChooseConvolutionsTest, OthersAreLeftToLibtorch) {
  Net{.weight = at::randn({6, 4, 3, 3}), .groups = 2}.expect_left_alone();
  Net net;
  net.image = net.image.to(at::kDouble);
  net.weight = net.weight.to(at::kDouble);
  net.bias = net.bias.to(at::kDouble);
  net.expect_left_alone();
  // Of another device.
  Trace trace = Net().step();
  EXPECT_EQ(choose_convolutions(trace, at::kCUDA), 0);
}

TEST(ChooseConvolutionsTest, ComesAfterThePassesThatKnowLibtorchs) {
  Trace trace = Net{.bias = at::zeros({6})}.step();
  optimize(trace, {"x", "w"}, {.device = at::kCPU});
  EXPECT_EQ(count(trace, "aten::convolution_backward"), 0);
  EXPECT_GE(count(trace, "tensorpack::convolution_backward"), 1);
  trace = Net().step();
  optimize(trace, {"x", "w"}, {.cudnn_choice = false, .device = at::kCPU});
  EXPECT_EQ(count(trace, "tensorpack::convolution_backward"), 0);
}

// ---- libtorch's first choice

// What operators find set, by the names they have.
class SearchWatch final : public OperatorWatch {
 public:
  std::vector<std::string> searching = {}, taking_the_first = {};

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    (at::globalContext().benchmarkCuDNN() ? searching : taking_the_first)
        .push_back(op.operator_name().name);
    pass_on(op, below, stack);
  }
};

class FirstChoiceTest : public testing::Test {
 protected:
  FirstChoiceTest() { at::globalContext().setBenchmarkCuDNN(true); }
  ~FirstChoiceTest() override { at::globalContext().setBenchmarkCuDNN(before_); }

  SearchWatch& watch(const std::function<void()>& function) {
    const WatchScope outer(seen_);
    const WatchScope inner(first_choice_of_convolutions(at::kCPU));
    function();
    return *seen_;
  }

 private:
  const bool before_ = at::globalContext().benchmarkCuDNN();
  std::shared_ptr<SearchWatch> seen_ = std::make_shared<SearchWatch>();
};

TEST_F(FirstChoiceTest, IsTakenForConvolutionsAlone) {
  const at::Tensor image = at::randn({2, 4, 5, 5}).set_requires_grad(true);
  const at::Tensor weight = at::randn({4, 4, 3, 3});
  const SearchWatch& seen = watch([&] { at::conv2d(image, weight).exp().sum().backward(); });
  EXPECT_THAT(seen.taking_the_first,
              ElementsAre("aten::convolution", "aten::convolution_backward"));
  EXPECT_THAT(seen.searching, testing::Contains("aten::exp"));
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
}

TEST_F(FirstChoiceTest, IsNotTakenForThoseThatStayLibtorchs) {
  const SearchWatch& seen = watch([&] {
    at::conv2d(at::randn({2, 4, 5, 5}), at::randn({4, 2, 3, 3}), {}, {1, 1},
               at::IntArrayRef({0, 0}), {1, 1}, 2);
  });
  EXPECT_THAT(seen.taking_the_first, testing::IsEmpty());
  EXPECT_THAT(seen.searching, testing::Contains("aten::convolution"));
}

TEST_F(FirstChoiceTest, EndsWithAConvolutionThatThrows) {
  EXPECT_ANY_THROW(watch([&] { at::conv2d(at::randn({2, 4, 5, 5}), at::randn({4, 3, 3, 3})); }));
  EXPECT_TRUE(at::globalContext().benchmarkCuDNN());
}

// ---- problems

TEST(ConvolutionProblemTest, DiffersInEachOfItsParts) {
  const ConvolutionProblem base{.input = {{2, 8, 9, 7}, {504, 1, 56, 8}},
                                .weight = {{6, 8, 3, 3}, {72, 1, 24, 8}},
                                .output = {{2, 6, 9, 7}, {378, 1, 42, 6}},
                                .stride = {1, 1},
                                .padding = {1, 1},
                                .dilation = {1, 1}};
  std::vector<ConvolutionProblem> others(11, base);
  others[0].result = ConvolutionProblem::Result::kWeight;
  others[1].type = at::kHalf;
  others[2].tf32 = true;
  others[3].input.sizes[0] = 3;
  others[4].input.strides[1] = 63;
  others[5].weight.sizes[0] = 7;
  others[6].output.strides[0] = 379;
  others[7].stride[0] = 2;
  others[8].padding[1] = 2;
  others[9].dilation[0] = 2;
  others[10].beside = true;
  for (const ConvolutionProblem& other : others) EXPECT_THAT(other.text(), Not(base.text()));
  EXPECT_EQ(ConvolutionProblem(base).text(), base.text());
}

}  // namespace
}  // namespace tensorpack::cuda
