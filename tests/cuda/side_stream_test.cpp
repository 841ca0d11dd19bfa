// SPDX-License-Identifier: Apache-2.0
// Gradients of weights leave the order of the backward pass, and nothing else changes.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>

#include "tensorpack/cuda/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::ElementsAre;

struct Convolutions {
  at::Tensor w0 = at::randn({8, 8, 3, 3}).set_requires_grad(true);
  at::Tensor w1 = at::randn({8, 8, 3, 3}).set_requires_grad(true);
  at::Tensor w2 = at::randn({8, 8, 3, 3}).set_requires_grad(true);

  Tensors variables() const { return {w0, w1, w2}; }

  Trace step(const at::Tensor& image) const {
    return trace_of({image}, variables(), [&](const Tensors& in) -> NamedTensors {
      at::Tensor y = in[0];
      for (const at::Tensor& w : variables()) y = at::conv2d(y, w, {}, 1, 1).tanh();
      const at::Tensor cost = y.sum();
      const auto gradients = torch::autograd::grad({cost}, variables());
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < 3; ++i) variables()[i].sub_(gradients[i], 0.1);
      return {{"cost", cost}};
    });
  }
};

// What concerns the side stream, and what is beside it.
std::vector<std::string> order_of(const Trace& trace) {
  std::vector<std::string> order;
  for (const Node& node : trace.nodes) {
    const std::string name = node.op.operator_name().name;
    if (name == "aten::convolution_backward") {
      const c10::List<bool> mask = node.arguments[10].literal.toBoolList();
      order.push_back(mask.get(0) ? mask.get(1) ? "both" : "input" : "weight");
    } else if (name == "aten::sub_") {
      order.emplace_back("update");
    } else if (name.ends_with("_side_stream")) {
      order.push_back(name.substr(12, name.find('_') - 12));
    }
  }
  return order;
}

TEST(SideStreamTest, GradientsOfWeightsAreMadeBesideTheOthersAndAwaitedByTheUpdate) {
  const Convolutions net;
  Trace trace = net.step(image());
  EXPECT_THAT(order_of(trace), ElementsAre("both", "both", "weight", "update", "update", "update"));
  use_side_stream(trace, at::kCPU);
  // The last one has nothing to run beside, and its variable is updated first.
  EXPECT_THAT(order_of(trace),
              ElementsAre("begin", "weight", "end", "input", "begin", "weight", "end", "input",
                          "weight", "update", "join", "update", "update"));
}

TEST(SideStreamTest, SoAreThoseOfFiltersOverFewChannels) {
  const at::Tensor w = at::randn({8, 3, 3, 3}).set_requires_grad(true);
  Trace trace = trace_of({at::randn({2, 3, 5, 5})}, {w}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor x = in[0].detach().set_requires_grad(true);
    const at::Tensor y = at::conv2d(x.exp().sin().cos(), w, {}, 1, 1).tanh();
    const auto gradients = torch::autograd::grad({y.sum()}, {w, x});
    const at::NoGradGuard no_grad;
    at::Tensor(w).sub_(gradients[0], 0.1);
    return {{"x", gradients[1]}};
  });
  EXPECT_EQ(fuse_filter_gradients(trace, at::kCPU), 1);
  use_side_stream(trace, at::kCPU);
  const std::vector<std::string> names = operators(trace);
  const auto found = std::find(names.begin(), names.end(), "tensorpack::filter_gradient");
  EXPECT_THAT(std::vector<std::string>(found - 1, found + 3),
              ElementsAre("tensorpack::begin_side_stream", "tensorpack::filter_gradient",
                          "tensorpack::end_side_stream", "aten::convolution_backward"));
}

TEST(SideStreamTest, TheResultIsTheSame) {
  const Convolutions net;
  Trace trace = net.step(image());
  const at::Tensor batch = image();
  const Tensors expected = outcome_of(trace, {batch}, net.variables());
  use_side_stream(trace, at::kCPU);
  expect_close(expected, outcome_of(trace, {batch}, net.variables()));
}

TEST(SideStreamTest, WhatItReadsIsKeptUntilTheJoin) {
  const Convolutions net;
  Trace trace = net.step(image());
  use_side_stream(trace, at::kCPU);
  std::set<ValueId> read, kept;
  for (size_t i = 1; i < trace.nodes.size(); ++i) {
    if (trace.nodes[i - 1].op_name() == "tensorpack::begin_side_stream") {
      trace.nodes[i].for_each_argument([&](ValueId id) {
        if (!trace.values[id].is_persistent()) read.insert(id);
      });
    }
    if (trace.nodes[i].op_name() == "tensorpack::join_side_stream") {
      trace.nodes[i].for_each_argument([&](ValueId id) { kept.insert(id); });
    }
  }
  EXPECT_EQ(kept, read);
  EXPECT_EQ(kept.size(), 4);
}

TEST(SideStreamTest, WhatIsKeptIsLimited) {
  const Convolutions net;
  Trace trace = net.step(image());
  for (Value& value : trace.values) value.storage_bytes = int64_t{1} << 28;
  use_side_stream(trace, at::kCPU);
  EXPECT_THAT(order_of(trace),
              ElementsAre("begin", "weight", "end", "input", "join", "begin", "weight", "end",
                          "input", "weight", "update", "join", "update", "update"));
}

TEST(SideStreamTest, AWriteToWhatItReadsWaits) {
  const Convolutions net;
  Trace trace = trace_of({image()}, net.variables(), [&](const Tensors& in) -> NamedTensors {
    const at::Tensor x = in[0].exp(), y = at::conv2d(x, net.w0, {}, 1, 1);
    const at::Tensor gradient = torch::autograd::grad({y.sum()}, {net.w0})[0];
    const at::NoGradGuard no_grad;
    const at::Tensor z = y.exp().sin().cos();
    at::Tensor(x).zero_();
    return {{"z", z.exp().sin().cos() + gradient.sum()}};
  });
  use_side_stream(trace, at::kCPU);
  const std::vector<std::string> names = operators(trace);
  const auto at_name = [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) - names.begin();
  };
  EXPECT_LT(at_name("tensorpack::end_side_stream"), at_name("tensorpack::join_side_stream"));
  EXPECT_EQ(at_name("tensorpack::join_side_stream") + 1, at_name("aten::zero_"));
}

TEST(SideStreamTest, WhatFillsTheDeviceByItselfStays) {
  Trace trace = trace_of({at::randn({256, 256})}, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor x = in[0].exp(), large = x.expand({160, 256, 256}).reshape({40960, 256});
    const at::Tensor y = at::mm(large, x), z = x.sin().cos().exp().tanh();
    return {{"y", y.sum() + z.sum()}};
  });
  const std::vector<std::string> before = operators(trace);
  use_side_stream(trace, at::kCPU);
  EXPECT_EQ(operators(trace), before);
}

}  // namespace
}  // namespace tensorpack::cuda
