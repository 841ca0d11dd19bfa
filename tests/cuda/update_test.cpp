// SPDX-License-Identifier: Apache-2.0
// Updates by kernels, compiled by the host's compiler, against those of the CPU.
#include "tensorpack/cuda/kernels/update.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include "tensorpack/optim/kernels.h"
#include "tests/cuda/host_device.h"

namespace tensorpack::cuda {
namespace {

// More variables than a table has, of all lengths, one of them longer than a block's part.
UpdateTensors make_tensors(c10::ScalarType of_gradients) {
  at::manual_seed(3);
  UpdateTensors tensors{.slots = {{}, {}}};
  for (int64_t i = 0; i < 70; ++i) {
    const std::vector<int64_t> sizes = {i == 5 ? 3000 : i * 7 % 23};
    tensors.variables.push_back(at::randn(sizes));
    tensors.gradients.push_back(at::randn(sizes).to(i % 2 == 0 ? of_gradients : at::kFloat));
    for (auto& slot : tensors.slots) slot.push_back(at::rand(sizes));
  }
  return tensors;
}

UpdateTensors copy_in_float(const UpdateTensors& of) {
  UpdateTensors copy;
  for (const auto& t : of.variables) copy.variables.push_back(t.clone());
  for (const auto& t : of.gradients) copy.gradients.push_back(t.to(at::kFloat));
  for (const auto& slot : of.slots) {
    copy.slots.emplace_back();
    for (const auto& t : slot) copy.slots.back().push_back(t.clone());
  }
  return copy;
}

void expect_close(const UpdateTensors& expected, const UpdateTensors& values) {
  for (size_t i = 0; i < expected.variables.size(); ++i) {
    EXPECT_TRUE(at::allclose(expected.variables[i], values.variables[i], 1e-5, 1e-6)) << i;
    for (size_t k = 0; k < expected.slots.size(); ++k) {
      if (expected.slots[k].empty()) continue;
      EXPECT_TRUE(at::allclose(expected.slots[k][i], values.slots[k][i], 1e-5, 1e-6)) << i;
    }
  }
}

TEST(UpdateKernelTest, SgdIsThatOfTheCpu) {
  const at::NoGradGuard no_grad;
  const at::Tensor lr = at::full({}, 0.1);
  for (const bool has_momentum : {false, true}) {
    UpdateTensors ours = make_tensors(at::kBFloat16);
    ours.slots.resize(1);
    if (!has_momentum) ours.slots[0].clear();
    const UpdateTensors theirs = copy_in_float(ours);
    ASSERT_TRUE(fits_update(ours, lr));
    const double momentum = has_momentum ? 0.9 : 0;
    sgd_update(ours, lr, {momentum, has_momentum, 0.1}, HostLauncher());
    kernels::sgd_(theirs.variables, theirs.slots[0], theirs.gradients, lr,
                  {.momentum = momentum, .nesterov = has_momentum, .weight_decay = 0.1});
    expect_close(theirs, ours);
  }
}

TEST(UpdateKernelTest, AdamIsThatOfTheCpu) {
  const at::NoGradGuard no_grad;
  const at::Tensor lr = at::full({}, 0.1), step = at::full({}, 3, at::kDouble);
  for (const bool decoupled : {false, true}) {
    const UpdateTensors ours = make_tensors(at::kHalf);
    const UpdateTensors theirs = copy_in_float(ours);
    ASSERT_TRUE(fits_update(ours, lr));
    adam_update(ours, lr, step, {.weight_decay = 0.1, .decoupled = decoupled}, HostLauncher());
    kernels::adam_(theirs.variables, theirs.slots[0], theirs.slots[1], theirs.gradients, lr, step,
                   {.weight_decay = 0.1, .decoupled = decoupled});
    expect_close(theirs, ours);
  }
}

// Of most variables; the last ones lie as rows of one tensor do, some of them not aligned.
std::vector<at::Tensor> copies_of(const UpdateTensors& tensors, c10::ScalarType type) {
  std::vector<at::Tensor> copies;
  int64_t elements = 0;
  for (const at::Tensor& variable : tensors.variables) elements += variable.numel();
  const at::Tensor together = at::full({elements}, 7, type);
  int64_t row = 0;
  for (size_t i = 0; i < tensors.variables.size(); ++i) {
    const int64_t rows = tensors.variables[i].numel();
    copies.push_back(i % 3 == 1 ? at::Tensor()
                     : i < 50   ? at::full({rows}, 7, type)
                                : together.narrow(0, row, rows));
    row += rows;
  }
  return copies;
}

void expect_copies(const UpdateTensors& tensors) {
  for (size_t i = 0; i < tensors.variables.size(); ++i) {
    const at::Tensor& copy = tensors.copies[i];
    if (!copy.defined()) continue;
    EXPECT_TRUE(at::equal(copy, tensors.variables[i].to(copy.scalar_type()))) << i;
  }
}

UpdateTensors cloned(const UpdateTensors& of) {
  UpdateTensors copy = copy_in_float(of);
  copy.gradients = of.gradients;
  return copy;
}

void expect_equal(const UpdateTensors& expected, const UpdateTensors& values) {
  for (size_t i = 0; i < expected.variables.size(); ++i) {
    EXPECT_TRUE(at::equal(expected.variables[i], values.variables[i])) << i;
    for (size_t k = 0; k < expected.slots.size(); ++k) {
      if (expected.slots[k].empty()) continue;
      EXPECT_TRUE(at::equal(expected.slots[k][i], values.slots[k][i])) << i;
    }
  }
}

TEST(UpdateKernelTest, SgdWritesCopiesAsTheyAreCast) {
  const at::Tensor lr = at::full({}, 0.1);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    for (const bool has_momentum : {false, true}) {
      UpdateTensors ours = make_tensors(at::kBFloat16);
      ours.slots.resize(1);
      if (!has_momentum) ours.slots[0].clear();
      UpdateTensors without = cloned(ours);
      ours.copies = copies_of(ours, type);
      const SgdUpdate options{has_momentum ? 0.9 : 0, has_momentum, 0.1};
      for (const UpdateTensors* tensors : {&ours, &without}) {
        ASSERT_TRUE(fits_update(*tensors, lr));
        sgd_update(*tensors, lr, options, HostLauncher());
      }
      expect_equal(without, ours);
      expect_copies(ours);
    }
  }
}

TEST(UpdateKernelTest, AdamWritesCopiesAsTheyAreCast) {
  const at::Tensor lr = at::full({}, 0.1), step = at::full({}, 3, at::kDouble);
  for (const auto type : {at::kBFloat16, at::kHalf}) {
    UpdateTensors ours = make_tensors(at::kHalf);
    UpdateTensors without = cloned(ours);
    ours.copies = copies_of(ours, type);
    for (const UpdateTensors* tensors : {&ours, &without}) {
      ASSERT_TRUE(fits_update(*tensors, lr));
      adam_update(*tensors, lr, step, {.weight_decay = 0.1}, HostLauncher());
    }
    expect_equal(without, ours);
    expect_copies(ours);
  }
}

TEST(UpdateKernelTest, AlignedCopiesAreWrittenAsTheyAreCast) {
  const at::Tensor lr = at::full({}, 0.1), x = at::randn({37, 61}), y = at::randn({1027});
  const UpdateTensors tensors{
      .variables = {x, y},
      .gradients = {at::randn({37, 61}), at::randn({1027})},
      .copies = {at::zeros({37, 61}, at::kBFloat16), at::zeros({1027}, at::kBFloat16)}};
  ASSERT_TRUE(fits_update(tensors, lr));
  sgd_update(tensors, lr, {}, HostLauncher());
  expect_copies(tensors);
}

TEST(UpdateKernelTest, CopiesOfOtherTypesOrLayoutsDoNotFit) {
  const at::Tensor lr = at::full({}, 0.1), x = at::zeros({3, 4});
  const auto fits = [&](std::vector<at::Tensor> copies) {
    return fits_update({.variables = {x, x}, .gradients = {x, x}, .copies = std::move(copies)}, lr);
  };
  const at::Tensor copy = x.to(at::kBFloat16);
  EXPECT_TRUE(fits({copy, copy}));
  EXPECT_TRUE(fits({at::Tensor(), copy}));
  EXPECT_TRUE(fits({at::Tensor(), at::Tensor()}));
  EXPECT_FALSE(fits({copy, x.to(at::kHalf)}));
  EXPECT_FALSE(fits({copy, at::zeros({4, 3}, at::kBFloat16).t()}));
  EXPECT_FALSE(fits({x, x}));
  EXPECT_FALSE(fits({x.to(at::kDouble), at::Tensor()}));
}

TEST(UpdateKernelTest, WhatIsLaidOutOtherwiseDoesNotFit) {
  const at::Tensor lr = at::full({}, 0.1);
  const at::Tensor x = at::zeros({3, 4});
  EXPECT_TRUE(fits_update({.variables = {x}, .gradients = {x}}, lr));
  EXPECT_FALSE(fits_update({.variables = {x}, .gradients = {at::zeros({4, 3}).t()}}, lr));
  EXPECT_FALSE(fits_update({.variables = {x}, .gradients = {x.to(at::kDouble)}}, lr));
  EXPECT_FALSE(fits_update({.variables = {x.to(at::kHalf)}, .gradients = {x}}, lr));
  EXPECT_FALSE(fits_update({.variables = {x}, .gradients = {x}}, lr.to(at::kLong)));
}

}  // namespace
}  // namespace tensorpack::cuda
