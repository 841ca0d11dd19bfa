// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/passes/pointwise_rules.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "tensorpack/cuda/kernels/formula.h"

namespace tensorpack::cuda {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Stands for an argument that libtorch's operator does not have.
constexpr int kNoLimit = -1;

struct Rule {
  const char* op = "";
  std::vector<int> arguments = {};  // of libtorch's operator, in the order of the step's operands
};

const std::unordered_map<std::string, Rule>& rules() {
  static const std::unordered_map<std::string, Rule> table = {
      {"aten::_to_copy", {"cast", {0}}},
      {"aten::clone", {"cast", {0}}},
      {"aten::neg", {"neg", {0}}},
      {"aten::abs", {"abs", {0}}},
      {"aten::relu", {"relu", {0}}},
      {"aten::sigmoid", {"sigmoid", {0}}},
      {"aten::tanh", {"tanh", {0}}},
      {"aten::silu", {"silu", {0}}},
      {"aten::gelu", {"gelu", {0}}},
      {"aten::exp", {"exp", {0}}},
      {"aten::log", {"log", {0}}},
      {"aten::sqrt", {"sqrt", {0}}},
      {"aten::rsqrt", {"rsqrt", {0}}},
      {"aten::reciprocal", {"reciprocal", {0}}},
      {"aten::add.Tensor", {"add", {0, 1, 2}}},
      {"aten::add.Scalar", {"add", {0, 1, 2}}},
      {"aten::sub.Tensor", {"sub", {0, 1, 2}}},
      {"aten::sub.Scalar", {"sub", {0, 1, 2}}},
      {"aten::rsub.Tensor", {"rsub", {0, 1, 2}}},
      {"aten::rsub.Scalar", {"rsub", {0, 1, 2}}},
      {"aten::mul.Tensor", {"mul", {0, 1}}},
      {"aten::mul.Scalar", {"mul", {0, 1}}},
      {"aten::div.Tensor", {"div", {0, 1}}},
      {"aten::div.Scalar", {"div", {0, 1}}},
      {"aten::maximum", {"maximum", {0, 1}}},
      {"aten::minimum", {"minimum", {0, 1}}},
      {"aten::eq.Tensor", {"eq", {0, 1}}},
      {"aten::eq.Scalar", {"eq", {0, 1}}},
      {"aten::ne.Tensor", {"ne", {0, 1}}},
      {"aten::ne.Scalar", {"ne", {0, 1}}},
      {"aten::lt.Tensor", {"lt", {0, 1}}},
      {"aten::lt.Scalar", {"lt", {0, 1}}},
      {"aten::le.Tensor", {"le", {0, 1}}},
      {"aten::le.Scalar", {"le", {0, 1}}},
      {"aten::gt.Tensor", {"gt", {0, 1}}},
      {"aten::gt.Scalar", {"gt", {0, 1}}},
      {"aten::ge.Tensor", {"ge", {0, 1}}},
      {"aten::ge.Scalar", {"ge", {0, 1}}},
      {"aten::where.self", {"where", {0, 1, 2}}},
      {"aten::masked_fill.Scalar", {"masked_fill", {0, 1, 2}}},
      {"aten::clamp", {"clamp", {0, 1, 2}}},
      {"aten::clamp_min", {"clamp", {0, 1, kNoLimit}}},
      {"aten::hardtanh", {"clamp", {0, 1, 2}}},
      {"aten::pow.Tensor_Scalar", {"pow", {0, 1}}},
      {"aten::leaky_relu", {"leaky_relu", {0, 1}}},
      {"aten::leaky_relu_backward", {"leaky_relu_backward", {0, 1, 2}}},
      {"aten::threshold_backward", {"threshold_backward", {0, 1, 2}}},
      {"aten::sigmoid_backward", {"sigmoid_backward", {0, 1}}},
      {"aten::tanh_backward", {"tanh_backward", {0, 1}}},
      {"aten::silu_backward", {"silu_backward", {0, 1}}},
      {"aten::gelu_backward", {"gelu_backward", {0, 1}}},
      {"aten::native_dropout_backward", {"dropout_backward", {0, 1, 2}}},
  };
  return table;
}

bool is_comparison(const std::string& op) {
  return op == "eq" || op == "ne" || op == "lt" || op == "le" || op == "gt" || op == "ge";
}

// libtorch wraps numbers into tensors. On another device, a tensor of one number in the host's
// memory is as good: a captured kernel has it as a parameter.
bool is_number(const Value& value, c10::DeviceType device) {
  return value.kind == ValueKind::kConstant && !value.varies && value.tensor.defined() &&
         value.tensor.dim() == 0 && value.tensor.is_cpu() &&
         (value.tensor.unsafeGetTensorImpl()->is_wrapped_number() || device != c10::kCPU);
}

std::optional<PointwiseOperand> operand_of(const TraceEditor& editor, const Node& node,
                                           int argument, size_t place, c10::DeviceType device) {
  if (argument == kNoLimit) return PointwiseOperand{.number = kInfinity};
  const Argument& given = node.arguments.at(argument);
  if (given.kind == Argument::Kind::kTensor) {
    if (given.ids[0] == kNoValue) return std::nullopt;
    const Value& value = editor.value(given.ids[0]);
    if (!is_number(value, device)) return PointwiseOperand{.id = given.ids[0]};
    return PointwiseOperand{.number = value.tensor.item().toDouble()};
  }
  if (given.literal.isScalar()) {
    const at::Scalar number = given.literal.toScalar();
    if (number.isComplex()) return std::nullopt;
    return PointwiseOperand{.number = number.toDouble()};
  }
  // clamp() without a limit
  if (given.literal.isNone()) {
    return PointwiseOperand{.number = place == 1 ? -kInfinity : kInfinity};
  }
  return std::nullopt;
}

// True if the type holds all values of the other.
bool holds(c10::ScalarType type, c10::ScalarType other) {
  return type == other || other == c10::kBool || type == c10::kFloat;
}

class Checker {
 public:
  Checker(const TraceEditor& editor, c10::DeviceType device) : editor_(editor), device_(device) {}

  bool is_data(ValueId id) const {
    const Value& value = editor_.value(id);
    return value.storage_bytes > 0 && value.options.device().type() == device_;
  }

  // Where an operand would be rounded before the operator, it is none of ours.
  bool has_right_types(const PointwiseNode& found, c10::ScalarType result) const {
    if (found.op == "cast") return true;
    std::vector<c10::ScalarType> types;
    for (const PointwiseOperand& operand : found.operands) {
      if (operand.id != kNoValue) types.push_back(type_of(operand.id));
    }
    const auto is_number = [](c10::ScalarType type) { return type != c10::kByte; };
    if (!std::all_of(types.begin(), types.end(), is_number)) return false;
    if (is_comparison(found.op)) {
      return result == c10::kBool &&
             std::all_of(types.begin(), types.end(),
                         [&](c10::ScalarType type) { return type == types[0]; });
    }
    return result != c10::kBool &&
           std::all_of(types.begin(), types.end(),
                       [&](c10::ScalarType type) { return holds(result, type); });
  }

  c10::ScalarType type_of(ValueId id) const {
    return editor_.value(id).options.dtype().toScalarType();
  }

 private:
  const TraceEditor& editor_;
  c10::DeviceType device_;
};

// gelu() comes in two forms, which its string tells apart.
void choose_form(const Node& node, PointwiseNode& found) {
  if (found.op != "gelu" && found.op != "gelu_backward") return;
  const c10::IValue& form = node.arguments.back().literal;
  if (form.isString() && form.toStringRef() == "tanh") {
    found.op = found.op == "gelu" ? "gelu_tanh" : "gelu_tanh_backward";
  }
}

}  // namespace

std::optional<PointwiseNode> as_pointwise(const TraceEditor& editor, const Node& node,
                                          c10::DeviceType device) {
  const auto rule = rules().find(node.op_name());
  if (rule == rules().end() || node.is_view || !node.writes.empty()) return std::nullopt;
  const Checker checker(editor, device);
  const ValueId result = result_at(node, 0);
  if (result == kNoValue || !checker.is_data(result) || !has_step_type(checker.type_of(result))) {
    return std::nullopt;
  }
  PointwiseNode found{.op = rule->second.op};
  bool has_tensor = false;
  for (size_t i = 0; i < rule->second.arguments.size(); ++i) {
    const auto operand = operand_of(editor, node, rule->second.arguments[i], i, device);
    if (!operand) return std::nullopt;
    if (operand->id != kNoValue) {
      has_tensor = true;
      if (!checker.is_data(operand->id) || !has_input_type(checker.type_of(operand->id))) {
        return std::nullopt;
      }
    }
    found.operands.push_back(*operand);
  }
  if (!has_tensor || !checker.has_right_types(found, checker.type_of(result))) return std::nullopt;
  choose_form(node, found);
  return found;
}

}  // namespace tensorpack::cuda
