// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "tensorpack/graph/dump.h"

namespace tensorpack {
namespace {

constexpr size_t kLongestLiteral = 40;

std::string value_text(const Trace& trace, ValueId id) {
  if (id == kNoValue) return "none";
  const Value& value = trace.values[id];
  if (!value.name.empty()) return "$" + value.name;
  return fmt::format("{}{}", value.kind == ValueKind::kConstant ? "const" : "%", id);
}

std::string values_text(const Trace& trace, const std::vector<ValueId>& ids) {
  std::vector<std::string> texts;
  for (ValueId id : ids) texts.push_back(value_text(trace, id));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

std::string argument_text(const Trace& trace, const Argument& argument) {
  if (argument.kind == Argument::Kind::kTensor) return value_text(trace, argument.ids[0]);
  if (argument.kind != Argument::Kind::kLiteral) return values_text(trace, argument.ids);
  std::ostringstream stream;
  stream << argument.literal;
  std::string text = stream.str();
  if (text.size() > kLongestLiteral) text = text.substr(0, kLongestLiteral) + "..";
  return text;
}

std::string result_text(const Trace& trace, const Result& result) {
  if (result.is_list) return values_text(trace, result.ids);
  const ValueId id = result.ids.empty() ? kNoValue : result.ids[0];
  if (id == kNoValue) return "_";
  return fmt::format("{}:[{}]", value_text(trace, id), fmt::join(trace.values[id].sizes, ","));
}

}  // namespace

std::string dump_text(const Trace& trace) {
  std::string text;
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    std::vector<std::string> results, arguments;
    for (const Result& result : node.results) results.push_back(result_text(trace, result));
    for (const Argument& argument : node.arguments) {
      arguments.push_back(argument_text(trace, argument));
    }
    text += fmt::format("{:4}: {} = {}({}){}{}{}{}\n", i, fmt::join(results, ", "), node.op_name(),
                        fmt::join(arguments, ", "), node.writes.empty() ? "" : " writes",
                        node.is_view ? " view" : "", node.is_random ? " random" : "",
                        node.scope.empty() ? "" : "  @" + node.scope);
  }
  for (const auto& [name, id] : trace.outputs) {
    text += fmt::format("output {} = {}\n", name, value_text(trace, id));
  }
  return text;
}

}  // namespace tensorpack
