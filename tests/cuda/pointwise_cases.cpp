// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <random>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/pointwise.h"
#include "tests/cuda/kernel_cases.h"

namespace tensorpack::cuda {
namespace {

using Tensors = std::vector<at::Tensor>;

// Of a value's magnitude: a few times what the type keeps.
double rounding_of(c10::ScalarType type) {
  if (type == c10::kBFloat16) return 4.0 / 128;
  return type == c10::kHalf ? 4.0 / 1024 : 1e-5;
}

void expect_alike(const Tensors& expected, const Tensors& values, const std::string& what) {
  ASSERT_EQ(expected.size(), values.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    const at::Tensor& e = expected[i];
    const at::Tensor& v = values[i];
    ASSERT_EQ(e.sizes(), v.sizes()) << what;
    EXPECT_EQ(e.strides(), v.strides()) << what;
    ASSERT_EQ(e.scalar_type(), v.scalar_type()) << what;
    const double tolerance = rounding_of(e.scalar_type());
    const bool is_close = at::allclose(e.to(at::kDouble).cpu(), v.to(at::kDouble).cpu(), tolerance,
                                       tolerance, /*equal_nan=*/true);
    EXPECT_TRUE(is_close) << "result " << i << " of " << what;
  }
}

// Draws formulas whose steps neither jump nor grow without bound.
class Gambler {
 public:
  explicit Gambler(uint64_t seed) : engine_(seed) { at::manual_seed(seed); }

  int draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(engine_); }
  template <typename T>
  T one_of(const std::vector<T>& choices) {
    return choices[draw(static_cast<int>(choices.size()))];
  }

  DenseLayout layout() {
    const auto sizes = one_of<std::vector<int64_t>>(
        {{2, 8, 3, 4}, {3, 5, 2, 7}, {6, 16}, {1, 1}, {4, 1, 3, 8}, {17}});
    at::Tensor like = at::empty(sizes);
    if (sizes.size() == 4 && draw(2) == 1) like = like.contiguous(at::MemoryFormat::ChannelsLast);
    if (sizes.size() == 2 && draw(2) == 1) like = at::empty({sizes[1], sizes[0]}).t();
    return {like.sizes().vec(), like.strides().vec()};
  }

  at::Tensor input(const DenseLayout& layout, c10::ScalarType type, c10::Device device) {
    std::vector<int64_t> sizes = layout.sizes;
    at::Tensor made;
    switch (draw(4)) {
      case 0:  // broadcast along some dimensions
        for (int64_t& size : sizes) size = draw(2) == 1 ? size : 1;
        made = at::randn(sizes);
        break;
      case 1:  // in whatever order
        made = at::randn(sizes);
        break;
      case 2:  // a part of something larger
        for (int64_t& size : sizes) size += 1;
        made = at::randn(sizes);
        for (size_t d = 0; d < sizes.size(); ++d) {
          made = made.narrow(static_cast<int64_t>(d), 1, layout.sizes[d]);
        }
        break;
      default:
        made = at::empty_strided(layout.sizes, layout.strides).normal_();
    }
    return made.to(device).to(type);
  }

  Formula formula(const std::vector<c10::ScalarType>& inputs, c10::ScalarType type) {
    static const std::vector<std::string> of_one = {"relu", "sigmoid", "tanh", "gelu", "gelu_tanh",
                                                    "silu", "neg",     "abs",  "cast"};
    static const std::vector<std::string> of_two = {
        "mul",           "maximum",       "minimum",       "sigmoid_backward",
        "tanh_backward", "silu_backward", "gelu_backward", "gelu_tanh_backward"};
    Formula formula{.inputs = static_cast<int>(inputs.size())};
    const int steps = 1 + draw(7);
    for (int i = 0; i < steps; ++i) {
      const auto value = [&] { return Operand{.value = draw(formula.inputs + i)}; };
      const auto input = [&] { return Operand{.value = draw(formula.inputs)}; };
      Step step{.type = type};
      switch (draw(5)) {
        case 0:
          step.op = one_of(of_one);
          step.operands = {value()};
          break;
        case 1:
          step.op = one_of(of_two);
          step.operands = {value(), step.op == "mul" ? input() : value()};
          break;
        case 2:
          step.op = one_of<std::string>({"add", "sub", "rsub"});
          step.operands = {
              value(), draw(2) == 1 ? value() : Operand{.number = 0.75}, {.number = 0.5}};
          break;
        case 3:  // jumps, but not where a rounding decides
          step.op = one_of<std::string>({"threshold_backward", "leaky_relu_backward"});
          step.operands = {value(), input(), {.number = 0.25}};
          break;
        default:
          step.op = "clamp";
          step.operands = {value(), {.number = -0.5}, {.number = 1.5}};
      }
      formula.steps.push_back(std::move(step));
      if (draw(3) == 0) formula.results.push_back(formula.inputs + i);
    }
    const int last = formula.inputs + steps - 1;
    if (formula.results.empty() || formula.results.back() != last) formula.results.push_back(last);
    return formula;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace

void expect_pointwise_as_unfused(uint64_t seed, const Launcher& launcher, c10::Device device) {
  Gambler gambler(seed);
  const DenseLayout layout = gambler.layout();
  const auto type =
      gambler.one_of<c10::ScalarType>({c10::kFloat, c10::kFloat, c10::kBFloat16, c10::kHalf});
  Tensors inputs;
  std::vector<c10::ScalarType> types;
  for (int i = 0, count = 1 + gambler.draw(4); i < count; ++i) {
    types.push_back(type == c10::kFloat
                        ? gambler.one_of<c10::ScalarType>({c10::kFloat, c10::kBFloat16, c10::kHalf})
                        : type);
    inputs.push_back(gambler.input(layout, types.back(), device));
  }
  const Formula formula = gambler.formula(types, type);
  const std::string text = to_text(formula);
  EXPECT_EQ(parse_formula(text, formula.inputs), formula) << text;
  // In float, which is right: CPUs round 16 bits in another way within an operator.
  expect_alike(pointwise_unfused(inputs, formula, layout),
               pointwise(inputs, formula, layout, launcher), text);
}

void expect_every_step_as_unfused(c10::ScalarType type, const Launcher& launcher,
                                  c10::Device device) {
  at::manual_seed(3);
  const DenseLayout layout{{4, 64}, {64, 1}};
  const auto options = at::TensorOptions(device);
  // %0 is positive, %1 of both signs, %2 true or false.
  const Tensors inputs = {at::rand(layout.sizes, options).add_(0.125).to(type),
                          at::randn(layout.sizes, options).mul_(2).to(type),
                          at::rand(layout.sizes, options) > 0.5};
  Formula formula{.inputs = 3};
  const auto add = [&](const std::string& op, std::vector<Operand> operands,
                       c10::ScalarType of_result) {
    formula.results.push_back(formula.inputs + static_cast<int>(formula.steps.size()));
    formula.steps.push_back({op, std::move(operands), of_result});
  };
  const Operand positive{.value = 0}, any{.value = 1}, mask{.value = 2}, number{.number = 0.3};
  for (const char* op : {"log", "sqrt", "rsqrt", "reciprocal"}) add(op, {positive}, type);
  for (const char* op :
       {"cast", "neg", "abs", "relu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh", "exp"}) {
    add(op, {any}, type);
  }
  for (const char* op : {"mul", "div", "maximum", "minimum", "sigmoid_backward", "tanh_backward",
                         "silu_backward", "gelu_backward", "gelu_tanh_backward"}) {
    add(op, {any, positive}, type);
  }
  for (const char* op : {"eq", "ne", "lt", "le", "gt", "ge"}) add(op, {any, positive}, c10::kBool);
  for (const char* op : {"add", "sub", "rsub"}) add(op, {any, positive, number}, type);
  for (double exponent : {2.0, 3.0, 0.5, -0.5, -1.0, -2.0, 1.7}) {
    add("pow", {positive, {.number = exponent}}, type);
  }
  add("div", {any, number}, type);
  add("where", {mask, any, positive}, type);
  add("where", {mask, any, number}, type);
  add("masked_fill", {any, mask, number}, type);
  add("clamp", {any, {.number = -1}, number}, type);
  add("leaky_relu", {any, number}, type);
  add("leaky_relu_backward", {positive, any, number}, type);
  add("threshold_backward", {positive, any, number}, type);
  add("dropout_backward", {any, mask, {.number = 2}}, type);
  expect_alike(pointwise_unfused(inputs, formula, layout),
               pointwise(inputs, formula, layout, launcher), to_text(formula));
}

void expect_pointwise_sum_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                     const Launcher& launcher, c10::Device device) {
  at::manual_seed(5);
  const auto draw = [&] {
    const at::Tensor made = at::randn(sizes, at::TensorOptions(device)).to(type);
    return sizes.size() == 4 ? made.contiguous(at::MemoryFormat::ChannelsLast) : made;
  };
  const Tensors inputs = {draw(), draw()};
  const DenseLayout layout{sizes.vec(), inputs[0].strides().vec()};
  const Formula formula{.inputs = 2,
                        .steps = {{"leaky_relu_backward", {{0}, {1}, {.number = 0.2}}, type}},
                        .results = {2}};
  const PointwiseSum sum{.columns = sizes[1], .type = at::kFloat, .sizes = {1, sizes[1]}};
  const at::Tensor counters = make_counters(device);
  const Tensors expected = pointwise_sum_unfused(inputs, formula, layout, sum);
  const Tensors values = pointwise_sum(inputs, counters, formula, layout, sum, launcher);
  expect_alike({expected[0]}, {values[0]}, "the gradient");
  const double scale = expected[1].abs().max().item<double>() + 1;
  EXPECT_LE((expected[1] - values[1]).abs().max().item<double>(), 1e-5 * scale);
  EXPECT_EQ(values[1].sizes(), at::IntArrayRef(sum.sizes));
  EXPECT_EQ(counters.abs().sum().item<int64_t>(), 0);
}

}  // namespace tensorpack::cuda
