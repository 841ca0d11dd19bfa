// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/comparison.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tensorpack {
namespace {

Outcome outcome(std::vector<float> values) { return {.variables = {{"b", at::tensor(values)}}}; }

// From zeros.
std::vector<Difference> differences_of(const Outcome& function, const Outcome& program,
                                       const Noise& noise = {}) {
  const NamedTensors start = {{"b", at::zeros({4})}};
  const std::vector<Difference> found = differences(function, program, start);
  return beyond(noise, part_of(function, found), part_of(program, found), start);
}

TEST(ComparisonTest, NamesWhatDiffers) {
  Outcome function = outcome({1, 2, 3, 4}), program = outcome({1, 2, 3, 5});
  function.outputs = {{"cost", at::tensor(1.0f)}, {"error", at::tensor(2.0f)}};
  program.outputs = {{"cost", at::tensor(1.0f)}, {"error", at::tensor(3.0f)}};
  const std::vector<Difference> found = differences_of(function, program);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(describe(found[0]), "the tensor 'error'");
  EXPECT_EQ(describe(found[1]), "the variable 'b'");
  EXPECT_EQ(part_of(program, found).outputs.size(), 1);
  EXPECT_EQ(part_of(program, found).variables.size(), 1);
}

// Each but the empty one, and each is named alone.
TEST(ComparisonTest, ComparesResultsOfAllTypesTogether) {
  const float infinity = std::numeric_limits<float>::infinity();
  const NamedTensors results = {
      {"bfloat16", at::tensor({1.0f, 2.0f}).to(at::kBFloat16)},
      {"complex", at::complex(at::tensor({1.0f}), at::tensor({2.0f}))},
      {"double", at::tensor({1.0, 2.0})},
      {"empty", at::empty({0})},
      {"infinite", at::tensor({infinity, 1.0f})},
      {"label", at::tensor({1, 2})},
      {"nan", at::tensor({std::nanf(""), 1.0f})},
  };
  EXPECT_TRUE(differences({.outputs = results}, {.outputs = results}, {}).empty());
  for (const auto& [name, value] : results) {
    NamedTensors rounded = results, other = results;
    if (value.is_floating_point()) rounded[name] = value * (1 + 1e-5);
    EXPECT_TRUE(differences({.outputs = results}, {.outputs = rounded}, {}).empty()) << name;
    other[name] = -value - 1;
    const auto found = differences({.outputs = results}, {.outputs = other}, {});
    ASSERT_EQ(found.size(), value.numel() > 0) << name;
    for (const Difference& difference : found) EXPECT_EQ(difference.name, name);
  }
}

TEST(ComparisonTest, NoiseIsTheLargestDifferenceOfEachElement) {
  Outcome spread;
  widen(spread, outcome({1, 1, 1, 1}), outcome({1, 2, 1, 1}));
  widen(spread, outcome({1, 1, 1, 1}), outcome({0.5, 1.5, 1, 1}));
  EXPECT_TRUE(at::equal(spread.variables.at("b"), at::tensor({0.5f, 1.0f, 0.0f, 0.0f})));
}

TEST(ComparisonTest, WhatTheFunctionDoesNotAgreeOnWithItselfMayDiffer) {
  const Outcome function = outcome({1, -1, 1, -1}), program = outcome({-1, 1, -1, 1});
  EXPECT_FALSE(differences_of(function, program).empty());
  Noise noise;
  widen(noise.of_function, function, outcome({-1, -1, 1, 1}));
  EXPECT_TRUE(differences_of(function, program, noise).empty());
}

TEST(ComparisonTest, TheProgramsNoiseIsAnExcuseOnlyForWhatIsNoiseInTheFunction) {
  const Outcome function = outcome({1, -1, 1, -1}), program = outcome({-9, 9, 9, -9});
  Noise noise;
  widen(noise.of_program, program, outcome({9, 9, 9, 9}));
  EXPECT_FALSE(differences_of(function, program, noise).empty());
  widen(noise.of_function, function, outcome({1, -1, 1, -0.5}));
  EXPECT_TRUE(differences_of(function, program, noise).empty());
}

TEST(ComparisonTest, WhatIsNoNumberIsNotNoise) {
  const Outcome function = outcome({1, -1, 1, -1}), program = outcome({1, -1, 1, std::nanf("")});
  Noise noise{.share = 1};
  widen(noise.of_function, function, outcome({-1, 1, -1, 1}));
  EXPECT_FALSE(differences_of(function, program, noise).empty());
}

}  // namespace
}  // namespace tensorpack
