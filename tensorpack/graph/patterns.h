// SPDX-License-Identifier: Apache-2.0
// Short ways to ask what a node is, for passes that look for patterns.
#pragma once

#include <optional>
#include <string_view>

#include "tensorpack/graph/trace_editor.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack {

/// Arguments of aten::convolution and aten::convolution_backward.
constexpr size_t kConvolutionBias = 2;
/// The first of what comes after the tensors, in either: stride, padding, dilation, whether it is
/// transposed, padding of the output, groups.
constexpr size_t kConvolutionGeometry = 3;
constexpr size_t kConvolutionBackwardGeometry = 4;
constexpr size_t kConvolutionOutputMask = 10;

inline bool is_op(const Node& node, std::string_view name) {
  const c10::OperatorName& op = node.op.operator_name();
  const size_t dot = name.find('.');
  return op.name == name.substr(0, dot) &&
         op.overload_name == (dot == name.npos ? std::string_view() : name.substr(dot + 1));
}

/// The tensor given for an argument; kNoValue if it is undefined or no tensor.
inline ValueId tensor_at(const Node& node, size_t argument) {
  const Argument& given = node.arguments.at(argument);
  return given.kind == Argument::Kind::kTensor ? given.ids[0] : kNoValue;
}

/// The value of a result; kNoValue if it is undefined.
inline ValueId result_at(const Node& node, size_t result) {
  const Result& made = node.results.at(result);
  return made.is_list || made.ids.empty() ? kNoValue : made.ids[0];
}

/// True if the argument is a number that equals `value`.
inline bool is_number(const Node& node, size_t argument, double value) {
  const c10::IValue& literal = node.arguments.at(argument).literal;
  return literal.isScalar() && literal.toScalar().toDouble() == value;
}

inline bool is_same_geometry(const Value& a, const Value& b) {
  return a.sizes == b.sizes && a.strides == b.strides && a.options.dtype() == b.options.dtype() &&
         a.options.device() == b.options.device();
}

int64_t elements_of(const Value& value);

/// True if the elements lie in order, and there are some.
bool is_contiguous(const Value& value);

inline Argument literal_argument(c10::IValue literal) { return {.literal = std::move(literal)}; }
/// None for kNoValue.
inline Argument tensor_argument(ValueId id) {
  return id == kNoValue ? literal_argument({}) : Argument{Argument::Kind::kTensor, {id}, {}};
}

/// A node of `op`, with its reads filled in from its arguments.
Node make_node(const Trace& trace, const c10::OperatorHandle& op, std::vector<Argument> arguments,
               const std::vector<ValueId>& results, const std::string& scope);

/// A new value in memory of its own that lies as another one does, of another type if one is given.
ValueId add_value_like(TraceEditor& editor, ValueId id, std::optional<at::ScalarType> dtype = {});

/// Puts a node of `op` where another one stands, into its scope, and commits that.
void replace_node(TraceEditor& editor, int32_t position, const c10::OperatorHandle& op,
                  std::vector<Argument> arguments, const std::vector<ValueId>& results);

}  // namespace tensorpack
