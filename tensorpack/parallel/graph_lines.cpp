// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/graph_lines.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "tensorpack/parallel/checksums.h"

namespace tensorpack {
namespace {

constexpr int64_t kMostElementsCompared = 256;

// Arguments that are not tensors. What prints as an address, or belongs to the process, goes by its
// kind.
std::string literal_text(const c10::IValue& literal) {
  if (literal.isList()) {
    std::vector<std::string> items;
    for (const c10::IValue& item : literal.toListRef()) items.push_back(literal_text(item));
    return fmt::format("[{}]", fmt::join(items, ", "));
  }
  if (literal.isNone()) return "none";
  if (literal.isBool()) return literal.toBool() ? "true" : "false";
  if (literal.isInt()) return std::to_string(literal.toInt());
  if (literal.isDouble()) return fmt::format("{}", literal.toDouble());  // in all its digits
  if (literal.isString()) return "'" + literal.toStringRef() + "'";
  if (literal.isComplexDouble()) {
    const c10::complex<double> value = literal.toComplexDouble();
    return fmt::format("{}{:+}i", value.real(), value.imag());
  }
  return literal.tagKind();
}

std::string constant_text(const at::Tensor& constant) {
  if (constant.layout() != at::kStrided || constant.numel() > kMostElementsCompared) {
    return fmt::format("constant [{}]", fmt::join(constant.sizes(), ", "));
  }
  const at::Tensor on_host = constant.detach().cpu();
  if (on_host.numel() == 1) return literal_text(on_host.item());
  return fmt::format("constant [{}] with checksum {:016x}", fmt::join(constant.sizes(), ", "),
                     checksums({on_host})[0]);
}

// Names the values of a trace alike in all processes: the chief's may have more variables, by which
// the numbers in the trace differ.
class ValueNames {
 public:
  explicit ValueNames(const Trace& trace) : trace_(trace) {}

  std::string name(ValueId id) {
    if (id == kNoValue) return "none";
    const Value& value = trace_.values[id];
    if (!value.name.empty()) return "$" + value.name;
    if (value.kind == ValueKind::kConstant) return constant_text(value.tensor);
    const size_t next = numbers_.size();
    return fmt::format("%{}", numbers_.try_emplace(id, next).first->second);
  }

  std::string text(const Argument& argument) {
    switch (argument.kind) {
      case Argument::Kind::kLiteral:
        return literal_text(argument.literal);
      case Argument::Kind::kTensor:
        return name(argument.ids[0]);
      default: {
        std::vector<std::string> names;
        for (const ValueId id : argument.ids) names.push_back(name(id));
        return fmt::format("[{}]", fmt::join(names, ", "));
      }
    }
  }

 private:
  const Trace& trace_;
  std::unordered_map<ValueId, size_t> numbers_;  // by the order in which they appear
};

}  // namespace

std::string describe_variable(const Variable& variable) {
  return fmt::format("variable '{}' [{}] {}", variable.name,
                     fmt::join(variable.tensor.sizes(), ", "),
                     c10::toString(variable.tensor.scalar_type()));
}

std::vector<std::string> describe_variables(const Graph& graph, size_t count) {
  std::vector<std::string> lines;
  for (const Variable& variable : graph.variables().all()) {
    if (lines.size() == count) break;
    lines.push_back(describe_variable(variable));
  }
  return lines;
}

std::vector<std::string> describe_nodes(const Op& op, const Trace& trace) {
  ValueNames names(trace);
  std::vector<std::string> lines;
  for (const Node& node : trace.nodes) {
    std::vector<std::string> arguments;
    for (const Argument& argument : node.arguments) arguments.push_back(names.text(argument));
    std::vector<std::string> results;
    node.for_each_result([&](ValueId id) {
      results.push_back(
          fmt::format("{} [{}]", names.name(id), fmt::join(trace.values[id].sizes, ", ")));
    });
    lines.push_back(fmt::format(
        "op '{}'{}: {}({}) -> {}", op.name(), node.scope.empty() ? "" : ", in '" + node.scope + "'",
        node.op_name(), fmt::join(arguments, ", "), fmt::join(results, ", ")));
  }
  return lines;
}

}  // namespace tensorpack
