// SPDX-License-Identifier: Apache-2.0
// What tests of fusion have in common: traces of the CPU, run before and after.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/graph/tracing.h"

namespace tensorpack::cuda {

/// Batch norm in training.
struct Norm {
  at::Tensor gamma = at::rand({8}).add_(0.5).set_requires_grad(true);
  at::Tensor beta = at::randn({8}).set_requires_grad(true);
  at::Tensor mean = at::zeros({8});
  at::Tensor variance = at::ones({8});

  at::Tensor operator()(const at::Tensor& x) const {
    return at::batch_norm(x, gamma, beta, mean, variance, true, 0.1, 1e-5, false);
  }
  Tensors variables() const { return {gamma, beta, mean, variance}; }
};

/// A small one, in channels_last.
inline at::Tensor image() {
  return at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
}

/// What a trace computes and leaves in the variables, which are put back.
inline Tensors outcome_of(const Trace& trace, const Tensors& inputs, const Tensors& variables) {
  Tensors saved, found;
  for (const at::Tensor& variable : variables) saved.push_back(variable.detach().clone());
  for (const auto& [name, id] : trace.outputs) {
    found.push_back(run(trace, inputs, name));
    Tensors after;
    for (size_t i = 0; i < variables.size(); ++i) {
      found.push_back(variables[i].detach().clone());
      variables[i].detach().copy_(saved[i]);
    }
  }
  return found;
}

/// Values and strides.
inline void expect_close(const Tensors& expected, const Tensors& values) {
  ASSERT_EQ(expected.size(), values.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(expected[i], values[i], 1e-4, 1e-5)) << i;
    EXPECT_EQ(expected[i].strides(), values[i].strides()) << i;
  }
}

/// How often an operator is there.
inline int64_t count(const Trace& trace, const std::string& name) {
  const std::vector<std::string> names = operators(trace);
  return std::count(names.begin(), names.end(), name);
}

}  // namespace tensorpack::cuda
