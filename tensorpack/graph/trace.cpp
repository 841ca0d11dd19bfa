// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/trace.h"

#include <bit>
#include <limits>
#include <sstream>

namespace tensorpack {
namespace {

std::string text_of(const c10::IValue& value) {
  std::ostringstream stream;
  stream.precision(std::numeric_limits<double>::max_digits10);
  stream << value;
  return stream.str();
}

}  // namespace

bool is_same_literal(const c10::IValue& a, const c10::IValue& b) {
  if (a.is(b)) return true;
  if (a.tagKind() != b.tagKind() || a.isTensor()) return false;  // one of them may be undefined
  if (a.isInt()) return a.toInt() == b.toInt();
  if (a.isBool()) return a.toBool() == b.toBool();
  if (a.isDouble()) {
    return std::bit_cast<uint64_t>(a.toDouble()) == std::bit_cast<uint64_t>(b.toDouble());
  }
  if (a.isGenerator()) return a.toGenerator() == b.toGenerator();
  if (a.isDevice()) return a.toDevice() == b.toDevice();
  if (a.isIntList()) return a.toIntVector() == b.toIntVector();
  return text_of(a) == text_of(b);
}

std::string name_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

std::string in_scope(const std::string& path) {
  return path.empty() ? "" : " in scope '" + path + "'";
}

void Trace::erase_nodes(const std::vector<char>& remove) {
  std::vector<int32_t> new_index(nodes.size(), -1);
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (remove[i]) continue;
    new_index[i] = static_cast<int32_t>(kept);
    if (kept != i) nodes[kept] = std::move(nodes[i]);
    ++kept;
  }
  nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(kept), nodes.end());
  for (Value& value : values) {
    if (value.producer >= 0) value.producer = new_index[value.producer];
  }
}

}  // namespace tensorpack
