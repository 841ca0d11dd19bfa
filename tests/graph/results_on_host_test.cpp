// SPDX-License-Identifier: Apache-2.0
// A function whose results lie elsewhere in between does not notice. The CPU stands for a device.
#include "tensorpack/graph/results_on_host.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/graph/tracing.h"

namespace tensorpack {
namespace {

constexpr ResultsOnHostOptions kSmall{.share_on_device = 0.5, .smallest_bytes = 1 << 10};

// Layers, of which autograd keeps what they made, and the gradients.
struct Layers {
  at::Tensor input = at::randn({64, 32});
  Tensors weights = [] {
    Tensors all;
    for (int i = 0; i < 8; ++i) all.push_back(at::randn({32, 32}).mul_(0.2).requires_grad_());
    return all;
  }();

  Tensors gradients() const {
    at::Tensor y = input;
    for (const at::Tensor& weight : weights) y = at::mm(y, weight).tanh();
    return torch::autograd::grad({y.square().sum()}, weights);
  }
};

TEST(ResultsOnHostTest, TheFunctionGivesTheSameBits) {
  const Layers layers;
  const Tensors expected = layers.gradients();
  Tensors gradients;
  const ResultsOnHost came_to =
      run_with_results_on_host([&] { gradients = layers.gradients(); }, at::kCPU, kSmall);
  ASSERT_EQ(gradients.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(gradients[i], expected[i])) << i;
  }
  EXPECT_GT(came_to.moved, 0);
}

TEST(ResultsOnHostTest, NoMoreThanTheShareIsOnTheDevice) {
  const Layers layers;
  const ResultsOnHost came_to =
      run_with_results_on_host([&] { layers.gradients(); }, at::kCPU, kSmall);
  EXPECT_GT(came_to.most, int64_t{8} * 64 * 32 * 4);
  EXPECT_LE(came_to.most_on_device, came_to.most * 6 / 10);
  EXPECT_LE(came_to.moved, 2 * came_to.most);
}

TEST(ResultsOnHostTest, WhatIsLittleStaysOnTheDevice) {
  const Layers layers;
  ResultsOnHostOptions options = kSmall;
  options.enough_on_device = 1 << 20;
  EXPECT_EQ(run_with_results_on_host([&] { layers.gradients(); }, at::kCPU, options).moved, 0);
}

TEST(ResultsOnHostTest, NoMoreThanIsAllowedIsOnTheHost) {
  const Layers layers;
  ResultsOnHostOptions options = kSmall;
  options.most_on_host = int64_t{3} * 64 * 32 * 4;  // three of the layers' results
  const ResultsOnHost came_to =
      run_with_results_on_host([&] { layers.gradients(); }, at::kCPU, options);
  EXPECT_GT(came_to.moved, 0);
  EXPECT_GE(came_to.most_on_device, came_to.most - options.most_on_host);
}

TEST(ResultsOnHostTest, ResultsOfManyPiecesComeBackWhole) {
  constexpr int64_t kElements = (int64_t{5} << 21) + 3;  // a piece and a quarter, and three numbers
  at::Tensor large, expected;
  run_with_results_on_host(
      [&] {
        large = at::arange(kElements, at::kFloat).add_(1);
        expected = large.clone();
        const at::Tensor others = at::ones({kElements}) + 1;  // pushes them out
        large.mul_(2);
      },
      at::kCPU, {.share_on_device = 0.1, .smallest_bytes = 1});
  EXPECT_TRUE(at::equal(large, expected * 2));
}

TEST(ResultsOnHostTest, VariablesAndInputsStay) {
  const Layers layers;
  std::vector<const void*> before;
  for (const at::Tensor& weight : layers.weights) before.push_back(weight.data_ptr());
  run_with_results_on_host([&] { layers.gradients(); }, at::kCPU,
                           {.share_on_device = 0, .smallest_bytes = 1});
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(layers.weights[i].data_ptr(), before[i]);
}

TEST(ResultsOnHostTest, ViewsAndWritesInPlaceFollowTheirMemory) {
  const auto function = [] {
    at::Tensor a = at::arange(4096, at::kFloat);
    const at::Tensor half = a.narrow(0, 0, 2048), rows = a.view({64, 64});
    const at::Tensor others = at::ones({1 << 16}) + 1;  // pushes them out
    half.add_(1);
    const at::Tensor more = others.exp();
    a.mul_(2);
    return std::vector<at::Tensor>{rows.t().contiguous(), half, more};
  };
  const Tensors expected = function();
  Tensors values;
  const ResultsOnHost came_to = run_with_results_on_host(
      [&] { values = function(); }, at::kCPU, {.share_on_device = 0.1, .smallest_bytes = 1});
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(values[i], expected[i])) << i;
  EXPECT_GT(came_to.moved, 0);
}

TEST(ResultsOnHostTest, AfterAnErrorAllIsBack) {
  at::Tensor kept;
  EXPECT_THROW(run_with_results_on_host(
                   [&] {
                     kept = at::ones({4096}) * 3;
                     const at::Tensor other = at::ones({1 << 16}) + 1;
                     at::mm(other, kept);
                   },
                   at::kCPU, {.share_on_device = 0.1, .smallest_bytes = 1}),
               c10::Error);
  EXPECT_TRUE(at::equal(kept, at::full({4096}, 3.F)));
}

TEST(ResultsOnHostTest, ARecordingIsTheSame) {
  const Layers layers;
  const auto trace_with = [&](bool on_host) {
    return trace_of({layers.input}, layers.weights, [&](const Tensors& in) -> NamedTensors {
      Layers those = layers;
      those.input = in[0];
      Tensors gradients;
      const auto function = [&] { gradients = those.gradients(); };
      if (on_host) {
        EXPECT_GT(run_with_results_on_host(function, at::kCPU, kSmall).moved, 0);
      } else {
        function();
      }
      return {{"g", gradients[0]}};
    });
  };
  const Trace plain = trace_with(false), moved = trace_with(true);
  EXPECT_EQ(operators(moved), operators(plain));
  EXPECT_TRUE(at::equal(run(moved, {layers.input}, "g"), run(plain, {layers.input}, "g")));
}

}  // namespace
}  // namespace tensorpack
