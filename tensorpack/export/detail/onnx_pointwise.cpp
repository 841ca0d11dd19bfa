// SPDX-License-Identifier: Apache-2.0
// Operators that compute each element by itself.
#include <ATen/ATen.h>

#include <cmath>
#include <numbers>

#include "tensorpack/export/detail/onnx_node.h"

namespace tensorpack::detail {
namespace {

float to_float(double value) { return static_cast<float>(value); }

OnnxMapping unary(std::string type) {
  return [type](OnnxNode& node) {
    node.give(node.emit(type, {node.in("self", node.result_value().dtype)}));
  };
}

OnnxMapping binary(std::string type) {
  return [type](OnnxNode& node) {
    const c10::ScalarType dtype = node.result_value().dtype;
    node.give(node.emit(type, {node.operand("self", dtype), node.operand("other", dtype)}));
  };
}

// self + alpha * other, and its relatives; reversed, other - alpha * self.
OnnxMapping sum(std::string type, bool is_reversed = false) {
  return [type, is_reversed](OnnxNode& node) {
    const c10::ScalarType dtype = node.result_value().dtype;
    std::string left = node.operand("self", dtype);
    std::string right = node.operand("other", dtype);
    if (is_reversed) std::swap(left, right);
    const double alpha = node.number("alpha", 1);
    if (alpha != 1) right = node.emit("Mul", {right, node.scalar(alpha, dtype)});
    if (dtype == at::kBool) {
      node.check(type == "Add", "it subtracts booleans");
      node.give(node.emit("Or", {left, right}));
    } else {
      node.give(node.emit(type, {left, right}));
    }
  };
}

// The type in which libtorch compares: numbers do not widen tensors of their kind.
c10::ScalarType compared_type(const OnnxNode& node) {
  const c10::ScalarType self = node.dtype("self");
  if (!node.is_number("other")) return c10::promoteTypes(self, node.dtype("other"));
  return c10::isFloatingType(self) ? self : at::kFloat;
}

OnnxMapping comparison(std::string type, bool is_negated = false) {
  return [type, is_negated](OnnxNode& node) {
    const c10::ScalarType dtype = compared_type(node);
    const std::string result =
        node.emit(type, {node.in("self", dtype), node.operand("other", dtype)});
    node.give(is_negated ? node.emit("Not", {result}) : result);
  };
}

OnnxMapping logical(std::string type) {
  return [type](OnnxNode& node) {
    node.give(node.emit(type, {node.in("self", at::kBool), node.in("other", at::kBool)}));
  };
}

void multiply(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(node.emit(dtype == at::kBool ? "And" : "Mul",
                      {node.operand("self", dtype), node.operand("other", dtype)}));
}

void power(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(node.emit("Pow", {node.operand("self", dtype), node.operand("exponent", dtype)}));
}

void square(OnnxNode& node) {
  const std::string x = node.in("self");
  node.give(node.emit("Mul", {x, x}));
}

// To a base, of which the natural logarithm is given.
OnnxMapping logarithm(double log_of_base) {
  return [log_of_base](OnnxNode& node) {
    const c10::ScalarType dtype = node.result_value().dtype;
    node.give(node.emit(
        "Div", {node.emit("Log", {node.in("self", dtype)}), node.scalar(log_of_base, dtype)}));
  };
}

void rsqrt(OnnxNode& node) {
  node.give(
      node.emit("Reciprocal", {node.emit("Sqrt", {node.in("self", node.result_value().dtype)})}));
}

void leaky_relu(OnnxNode& node) {
  node.give(node.emit("LeakyRelu", {node.in("self")},
                      {{"alpha", to_float(node.number("negative_slope", 0.01))}}));
}

void prelu(OnnxNode& node) {
  const at::Tensor slope = node.constant("weight");
  node.check(slope.defined(), "its slopes are computed");
  const int64_t dims = std::max<int64_t>(node.rank("self") - 2, 0);
  Shape shape(static_cast<size_t>(dims) + 1, 1);
  shape[0] = slope.numel();
  const bool is_shared = slope.numel() == 1;
  node.give(node.emit("PRelu", {node.in("self"), node.constant(is_shared ? slope.reshape({1})
                                                                         : slope.reshape(shape))}));
}

// scale * (x > 0 ? x : alpha * (exp(input_scale * x) - 1))
void elu(OnnxNode& node) {
  node.check(node.number("input_scale", 1) == 1, "it scales its input");
  const std::string x =
      node.emit("Elu", {node.in("self")}, {{"alpha", to_float(node.number("alpha", 1))}});
  const double scale = node.number("scale", 1);
  node.give(scale == 1 ? x : node.emit("Mul", {x, node.scalar(scale, node.result_value().dtype)}));
}

void softplus(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  const double beta = node.number("beta", 1);
  const std::string x = node.in("self");
  if (beta == 1) return node.give(node.emit("Softplus", {x}));
  const std::string scale = node.scalar(beta, dtype);
  node.give(node.emit("Div", {node.emit("Softplus", {node.emit("Mul", {x, scale})}), scale}));
}

void log_sigmoid(OnnxNode& node) {
  node.give(node.emit("Neg", {node.emit("Softplus", {node.emit("Neg", {node.in("self")})})}));
}

void silu(OnnxNode& node) {
  const std::string x = node.in("self");
  node.give(node.emit("Mul", {x, node.emit("Sigmoid", {x})}));
}

void mish(OnnxNode& node) {
  const std::string x = node.in("self");
  node.give(node.emit("Mul", {x, node.emit("Tanh", {node.emit("Softplus", {x})})}));
}

void gelu(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  const std::string x = node.in("self");
  std::string inner;
  if (node.text("approximate", "none") == "none") {
    inner = node.emit("Erf", {node.emit("Mul", {x, node.scalar(std::numbers::sqrt2 / 2, dtype)})});
  } else {
    const std::string cube = node.emit("Mul", {x, node.emit("Mul", {x, x})});
    const std::string scaled = node.emit("Mul", {cube, node.scalar(0.044715, dtype)});
    const double factor = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
    inner = node.emit(
        "Tanh", {node.emit("Mul", {node.emit("Add", {x, scaled}), node.scalar(factor, dtype)})});
  }
  const std::string half = node.emit("Mul", {x, node.scalar(0.5, dtype)});
  node.give(node.emit("Mul", {half, node.emit("Add", {inner, node.scalar(1, dtype)})}));
}

void hard_sigmoid(OnnxNode& node) {
  node.give(node.emit("HardSigmoid", {node.in("self")}, {{"alpha", 1.0F / 6}, {"beta", 0.5F}}));
}

OnnxMapping clip(std::string low, std::string high) {
  return [low, high](OnnxNode& node) {
    const c10::ScalarType dtype = node.result_value().dtype;
    const auto bound = [&](const std::string& name) {
      return name.empty() || !node.given(name) ? "" : node.operand(name, dtype);
    };
    node.give(node.emit("Clip", {node.in("self", dtype), bound(low), bound(high)}));
  };
}

void hardtanh(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(node.emit("Clip", {node.in("self"), node.scalar(node.number("min_val", -1), dtype),
                               node.scalar(node.number("max_val", 1), dtype)}));
}

void where(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(node.emit("Where", {node.in("condition", at::kBool), node.operand("self", dtype),
                                node.operand("other", dtype)}));
}

void masked_fill(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(node.emit("Where",
                      {node.in("mask", at::kBool), node.operand("value", dtype), node.in("self")}));
}

// self + value * tensor1 (op) tensor2
OnnxMapping add_combined(std::string type) {
  return [type](OnnxNode& node) {
    const c10::ScalarType dtype = node.result_value().dtype;
    std::string x = node.emit(type, {node.in("tensor1", dtype), node.in("tensor2", dtype)});
    const double factor = node.number("value", 1);
    if (factor != 1) x = node.emit("Mul", {x, node.scalar(factor, dtype)});
    node.give(node.emit("Add", {node.in("self", dtype), x}));
  };
}

void convert(OnnxNode& node) {
  const c10::ScalarType dtype = node.result_value().dtype;
  node.give(node.dtype("self") == dtype ? node.emit("Identity", {node.in("self")})
                                        : node.cast(node.in("self"), dtype));
}

}  // namespace

const std::map<std::string, OnnxMapping>& onnx_pointwise() {
  static const std::map<std::string, OnnxMapping> table = {
      {"aten::abs", unary("Abs")},
      {"aten::acos", unary("Acos")},
      {"aten::acosh", unary("Acosh")},
      {"aten::asin", unary("Asin")},
      {"aten::asinh", unary("Asinh")},
      {"aten::atan", unary("Atan")},
      {"aten::atanh", unary("Atanh")},
      {"aten::ceil", unary("Ceil")},
      {"aten::cos", unary("Cos")},
      {"aten::cosh", unary("Cosh")},
      {"aten::erf", unary("Erf")},
      {"aten::exp", unary("Exp")},
      {"aten::floor", unary("Floor")},
      {"aten::hardswish", unary("HardSwish")},
      {"aten::log", unary("Log")},
      {"aten::logical_not", [](OnnxNode& n) { n.give(n.emit("Not", {n.in("self", at::kBool)})); }},
      {"aten::neg", unary("Neg")},
      {"aten::reciprocal", unary("Reciprocal")},
      {"aten::relu", unary("Relu")},
      {"aten::round", unary("Round")},
      {"aten::sigmoid", unary("Sigmoid")},
      {"aten::sign", unary("Sign")},
      {"aten::sin", unary("Sin")},
      {"aten::sinh", unary("Sinh")},
      {"aten::sqrt", unary("Sqrt")},
      {"aten::tan", unary("Tan")},
      {"aten::tanh", unary("Tanh")},
      {"aten::log2", logarithm(std::numbers::ln2)},
      {"aten::log10", logarithm(std::numbers::ln10)},
      {"aten::add.Scalar", sum("Add")},
      {"aten::add.Tensor", sum("Add")},
      {"aten::rsub.Scalar", sum("Sub", /*is_reversed=*/true)},
      {"aten::rsub.Tensor", sum("Sub", /*is_reversed=*/true)},
      {"aten::sub.Scalar", sum("Sub")},
      {"aten::sub.Tensor", sum("Sub")},
      {"aten::div.Scalar", binary("Div")},
      {"aten::div.Tensor", binary("Div")},
      {"aten::maximum", binary("Max")},
      {"aten::minimum", binary("Min")},
      {"aten::mul.Scalar", multiply},
      {"aten::mul.Tensor", multiply},
      {"aten::pow.Tensor_Scalar", power},
      {"aten::pow.Tensor_Tensor", power},
      {"aten::pow.Scalar", power},
      {"aten::square", square},
      {"aten::rsqrt", rsqrt},
      {"aten::eq.Scalar", comparison("Equal")},
      {"aten::eq.Tensor", comparison("Equal")},
      {"aten::ge.Scalar", comparison("GreaterOrEqual")},
      {"aten::ge.Tensor", comparison("GreaterOrEqual")},
      {"aten::gt.Scalar", comparison("Greater")},
      {"aten::gt.Tensor", comparison("Greater")},
      {"aten::le.Scalar", comparison("LessOrEqual")},
      {"aten::le.Tensor", comparison("LessOrEqual")},
      {"aten::lt.Scalar", comparison("Less")},
      {"aten::lt.Tensor", comparison("Less")},
      {"aten::ne.Scalar", comparison("Equal", /*is_negated=*/true)},
      {"aten::ne.Tensor", comparison("Equal", /*is_negated=*/true)},
      {"aten::logical_and", logical("And")},
      {"aten::logical_or", logical("Or")},
      {"aten::logical_xor", logical("Xor")},
      {"aten::leaky_relu", leaky_relu},
      {"aten::prelu", prelu},
      {"aten::_prelu_kernel", prelu},
      {"aten::elu", elu},
      {"aten::softplus", softplus},
      {"aten::log_sigmoid_forward", log_sigmoid},
      {"aten::silu", silu},
      {"aten::mish", mish},
      {"aten::gelu", gelu},
      {"aten::hardsigmoid", hard_sigmoid},
      {"aten::hardtanh", hardtanh},
      {"aten::clamp", clip("min", "max")},
      {"aten::clamp.Tensor", clip("min", "max")},
      {"aten::clamp_min", clip("min", "")},
      {"aten::clamp_max", clip("", "max")},
      {"aten::where.self", where},
      {"aten::masked_fill.Scalar", masked_fill},
      {"aten::masked_fill.Tensor", masked_fill},
      {"aten::addcmul", add_combined("Mul")},
      {"aten::addcdiv", add_combined("Div")},
      {"aten::_to_copy", convert},
      {"aten::alias", convert},
      {"aten::clone", convert},
      {"aten::contiguous", convert},
      {"aten::detach", convert},
      {"aten::lift_fresh", convert},
  };
  return table;
}

}  // namespace tensorpack::detail
