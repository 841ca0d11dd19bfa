// SPDX-License-Identifier: Apache-2.0
// Gradients of weights leave the order of the backward pass, and nothing else changes.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <set>

#include "tensorpack/cuda/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::ElementsAre;

// Moves the variables against their gradients.
NamedTensors descend(const at::Tensor& cost, const Tensors& variables) {
  const auto gradients = torch::autograd::grad({cost}, variables);
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < variables.size(); ++i) {
    at::Tensor(variables[i]).sub_(gradients[i], 0.1);
  }
  return {{"cost", cost}};
}

struct Convolutions {
  at::Tensor w0 = at::randn({8, 8, 3, 3}).set_requires_grad(true);
  at::Tensor w1 = at::randn({8, 8, 3, 3}).set_requires_grad(true);
  at::Tensor w2 = at::randn({8, 8, 3, 3}).set_requires_grad(true);

  Tensors variables() const { return {w0, w1, w2}; }

  Trace step(const at::Tensor& image) const {
    return trace_of({image}, variables(), [&](const Tensors& in) -> NamedTensors {
      at::Tensor y = in[0];
      for (const at::Tensor& w : variables()) y = at::conv2d(y, w, {}, 1, 1).tanh();
      return descend(y.sum(), variables());
    });
  }
};

// One weight, three times.
struct SharedConvolution {
  at::Tensor w = at::randn({8, 8, 3, 3}).set_requires_grad(true);

  Tensors variables() const { return {w}; }

  Trace step(const at::Tensor& image) const {
    return trace_of({image}, variables(), [&](const Tensors& in) -> NamedTensors {
      at::Tensor y = in[0];
      for (int i = 0; i < 3; ++i) y = at::conv2d(y, w, {}, 1, 1).tanh();
      return descend(y.sum(), variables());
    });
  }
};

struct Products {
  explicit Products(int64_t hidden)
      : w0(at::randn({hidden, 8}).set_requires_grad(true)),
        b0(at::randn({hidden}).set_requires_grad(true)),
        w1(at::randn({16, hidden}).set_requires_grad(true)),
        b1(at::randn({16}).set_requires_grad(true)) {}
  at::Tensor w0, b0, w1, b1;

  Tensors variables() const { return {w0, b0, w1, b1}; }

  Trace step(int64_t rows) const {
    return trace_of({at::randn({rows, 8})}, variables(), [&](const Tensors& in) -> NamedTensors {
      const at::Tensor y = at::linear(at::linear(in[0], w0, b0).tanh(), w1, b1);
      return descend(y.square().sum(), variables());
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
    } else if (name == "tensorpack::folded_weight_gradient") {
      order.emplace_back("folded weight");
    } else if (name == "aten::sub_") {
      order.emplace_back("update");
    } else if (name == "aten::mm" || name == "aten::add") {
      order.push_back(name.substr(6));
    } else if (node.op_name() == "aten::sum.dim_IntList" || name == "tensorpack::column_sum") {
      order.emplace_back("sum");
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

TEST(SideStreamTest, TheSumOfTwoGradientsFollowsThem) {
  const SharedConvolution net;
  Trace trace = net.step(image());
  make_functional(trace, at::kCPU);  // libtorch 2 adds gradients in place
  EXPECT_THAT(order_of(trace), ElementsAre("both", "both", "add", "weight", "add", "update"));
  use_side_stream(trace, at::kCPU);
  EXPECT_THAT(order_of(trace),
              ElementsAre("begin", "weight", "end", "input", "begin", "weight", "end", "input",
                          "begin", "add", "end", "weight", "join", "add", "update"));
}

TEST(SideStreamTest, AnAdditionOfAnythingElseStays) {
  const Convolutions net;
  Trace trace = trace_of({image()}, net.variables(), [&](const Tensors& in) -> NamedTensors {
    const at::Tensor x = in[0].exp(), y = x + in[0];
    const at::Tensor z = at::conv2d(x, net.w0, {}, 1, 1).sum();
    return {{"y", y}, {"z", z}};
  });
  use_side_stream(trace, at::kCPU);
  EXPECT_THAT(order_of(trace), ElementsAre("add"));
}

TEST(SideStreamTest, GradientsOfInputsStayAndSumsForBiasesLeave) {
  const Products net(32);
  Trace trace = net.step(4);
  EXPECT_THAT(order_of(trace),
              ElementsAre("mm", "mm", "sum", "mm", "sum", "update", "update", "update", "update"));
  use_side_stream(trace, at::kCPU);
  // Each update waits for what it needs, and not for the sum behind that.
  EXPECT_THAT(order_of(trace),
              ElementsAre("mm", "begin", "mm", "end", "begin", "sum", "end", "mm", "sum", "update",
                          "update", "join", "update", "join", "update"));
}

TEST(SideStreamTest, SumsThatShareAConstantToCountInAreNotMadeAtOnce) {
  const Products net(64);
  Trace trace = net.step(8192);
  ASSERT_EQ(fuse_column_sums(trace, at::kCPU), 2);
  use_side_stream(trace, at::kCPU);
  // The second one is too large to leave.
  EXPECT_THAT(order_of(trace), ElementsAre("mm", "begin", "mm", "end", "begin", "sum", "end", "mm",
                                           "join", "sum", "update", "update", "update", "update"));
}

template <typename Net>
void expect_the_same_result(const Net& net, Trace trace, const at::Tensor& batch) {
  const Tensors expected = outcome_of(trace, {batch}, net.variables());
  use_side_stream(trace, at::kCPU);
  expect_close(expected, outcome_of(trace, {batch}, net.variables()));
}

TEST(SideStreamTest, TheResultIsTheSame) {
  const Convolutions convolutions;
  expect_the_same_result(convolutions, convolutions.step(image()), image());
  const SharedConvolution shared;
  expect_the_same_result(shared, shared.step(image()), image());
  const Products products(32);
  expect_the_same_result(products, products.step(4), at::randn({4, 8}));
}

// The number of a section, which those that begin, end and await it have.
int64_t number_of(const Node& node) { return node.arguments.at(1).literal.toInt(); }

// How often a node may run at once with one that it must come behind. What is issued aside begins
// behind all that was issued before; the rest is behind what is aside once that is awaited.
int races(const Trace& trace) {
  struct Access {
    int64_t number;
    bool writes;
  };
  std::map<StorageId, std::vector<Access>> aside;
  int64_t number = 0, awaited = 0;  // sections
  bool is_aside = false;
  int found = 0;
  const auto touch = [&](StorageId storage, bool writes) {
    if (is_aside) {
      aside[storage].push_back({number, writes});
      return;
    }
    for (const Access& other : aside[storage]) {
      found += (writes || other.writes) && other.number > awaited;
    }
  };
  for (const Node& node : trace.nodes) {
    const std::string name = node.op_name();
    if (name == "tensorpack::begin_side_stream") {
      is_aside = true;
      EXPECT_GT(number_of(node), number);
      number = number_of(node);
    } else if (name == "tensorpack::end_side_stream") {
      is_aside = false;
      EXPECT_EQ(number_of(node), number);
    } else if (name == "tensorpack::join_side_stream") {
      awaited = std::max(awaited, number_of(node));
    } else if (!node.is_view) {
      node.for_each_argument([&](ValueId id) { touch(trace.values[id].storage, false); });
      node.for_each_result([&](ValueId id) { touch(trace.values[id].storage, true); });
      for (const StorageId storage : node.writes) touch(storage, true);
      if (name == "tensorpack::column_sum") {
        touch(trace.values[node.arguments[1].ids[0]].storage, true);
      }
    }
  }
  return found + (awaited == number ? 0 : 1);
}

// The sizes decide how much may be aside at a time.
Trace with_tensors_of(int64_t bytes, Trace trace) {
  for (Value& value : trace.values) value.storage_bytes = bytes;
  return trace;
}

TEST(SideStreamTest, NothingRaces) {
  Trace sums = Products(64).step(8192);
  fuse_column_sums(sums, at::kCPU);
  const std::vector<Trace> steps = {Convolutions().step(image()), SharedConvolution().step(image()),
                                    Products(32).step(4), sums};
  for (size_t i = 0; i < 3 * steps.size(); ++i) {
    Trace trace = steps[i / 3];
    if (i % 3 > 0) trace = with_tensors_of((1 << 26) << (i % 3), trace);
    use_side_stream(trace, at::kCPU);
    EXPECT_EQ(races(trace), 0);
    // Without its joins it would.
    std::erase_if(trace.nodes, [](const Node& node) {
      return node.op_name() == "tensorpack::join_side_stream";
    });
    EXPECT_GT(races(trace), 0);
  }
}

// Each value that is read aside is held until its section is awaited, and nothing else is.
void expect_kept(Trace trace) {
  use_side_stream(trace, at::kCPU);
  std::map<ValueId, int64_t> read;  // by the section that reads it last
  std::set<ValueId> kept;
  for (size_t i = 1; i < trace.nodes.size(); ++i) {
    const Node &before = trace.nodes[i - 1], &node = trace.nodes[i];
    if (before.op_name() == "tensorpack::begin_side_stream") {
      node.for_each_argument([&](ValueId id) {
        if (!trace.values[id].is_persistent()) read[id] = number_of(before);
      });
    }
    if (node.op_name() != "tensorpack::join_side_stream") continue;
    node.for_each_argument([&](ValueId id) {
      EXPECT_TRUE(read.contains(id));
      if (number_of(node) >= read[id]) kept.insert(id);
    });
  }
  EXPECT_FALSE(read.empty());
  EXPECT_EQ(kept.size(), read.size());
}

TEST(SideStreamTest, WhatIsReadAsideIsKeptUntilTheJoin) {
  for (const int64_t bytes : {1, 1 << 27, 1 << 28}) {
    expect_kept(with_tensors_of(bytes, Convolutions().step(image())));
    expect_kept(with_tensors_of(bytes, SharedConvolution().step(image())));
    expect_kept(with_tensors_of(bytes, Products(32).step(4)));
  }
}

std::vector<int64_t> awaited_sections(const Trace& trace) {
  std::vector<int64_t> numbers;
  for (const Node& node : trace.nodes) {
    if (node.op_name() == "tensorpack::join_side_stream") numbers.push_back(number_of(node));
  }
  return numbers;
}

TEST(SideStreamTest, IfMuchIsKeptTheOldestIsAwaited) {
  const Convolutions net;
  // One section may be aside, or none.
  Trace trace = with_tensors_of(1 << 27, net.step(image()));
  use_side_stream(trace, at::kCPU);
  EXPECT_THAT(order_of(trace),
              ElementsAre("begin", "weight", "end", "input", "begin", "weight", "end", "input",
                          "join", "weight", "update", "join", "update", "update"));
  EXPECT_THAT(awaited_sections(trace), ElementsAre(1, 2));
  trace = with_tensors_of(1 << 28, net.step(image()));
  use_side_stream(trace, at::kCPU);
  EXPECT_THAT(order_of(trace),
              ElementsAre("begin", "weight", "end", "input", "join", "begin", "weight", "end",
                          "input", "join", "weight", "update", "update", "update"));
  EXPECT_THAT(awaited_sections(trace), ElementsAre(1, 2));
}

TEST(SideStreamTest, AWriteToWhatItReadsWaits) {
  const Convolutions net;
  Trace trace = trace_of({image()}, net.variables(), [&](const Tensors& in) -> NamedTensors {
    const at::Tensor x = in[0].exp(), y = at::conv2d(x, net.w0, {}, 1, 1);
    const at::Tensor gradient = torch::autograd::grad({y.sum()}, {net.w0})[0];
    const at::NoGradGuard no_grad;
    const at::Tensor z = y.exp().reshape({2, -1});
    at::Tensor(x).zero_();
    const at::Tensor product = at::mm(z, z.t());
    return {{"z", product.sum() + gradient.sum()}};
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
    const at::Tensor x = in[0].exp(), large = x.expand({500, 256, 256}).reshape({-1, 256});
    const at::Tensor y = at::mm(large, x), sums = large.sum(0), z = at::mm(x.sin(), x);
    return {{"y", y.sum() + sums.sum() + z.sum()}};
  });
  const std::vector<std::string> before = operators(trace);
  use_side_stream(trace, at::kCPU);
  EXPECT_EQ(operators(trace), before);
}

}  // namespace
}  // namespace tensorpack::cuda
