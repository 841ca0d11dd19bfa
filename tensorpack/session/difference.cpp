// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/difference.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/session/comparison.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::string literal_text(const c10::IValue& value) {
  std::ostringstream stream;
  stream << value;
  return stream.str().substr(0, 60);
}

// An argument that is a plain number in both runs but not the same one was decided on the host.
std::string describe_literal_difference(const Node& before, const Node& now) {
  for (size_t i = 0; i < before.arguments.size(); ++i) {
    const Argument& a = before.arguments[i];
    const Argument& b = now.arguments[i];
    if (a.kind != Argument::Kind::kLiteral || b.kind != Argument::Kind::kLiteral) continue;
    const std::string old_text = literal_text(a.literal);
    const std::string new_text = literal_text(b.literal);
    if (old_text != new_text) {
      return fmt::format("its argument '{}' was {} when recorded and is {} now",
                         before.op.schema().arguments()[i].name(), old_text, new_text);
    }
  }
  return "";
}

}  // namespace

std::string place_of(const Node& node, size_t index) {
  return fmt::format("node {}, {}{}", index, node.op_name(), in_scope(node.scope));
}

std::vector<at::Tensor> copies_on(c10::Device device, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false,
                               /*copy=*/true));
  }
  return copies;
}

std::string difference_in_structure(const Trace& before, const Trace& now) {
  for (size_t i = 0; i < std::min(before.nodes.size(), now.nodes.size()); ++i) {
    const Node& node = before.nodes[i];
    if (node.op_name() != now.nodes[i].op_name()) {
      return fmt::format("{}: the function now calls {} instead", place_of(node, i),
                         now.nodes[i].op_name());
    }
    const std::string literal = describe_literal_difference(node, now.nodes[i]);
    if (!literal.empty()) return fmt::format("{}: {}", place_of(node, i), literal);
  }
  if (before.nodes.size() != now.nodes.size()) {
    return fmt::format("the function ran {} when recorded and {} now",
                       counted(std::ssize(before.nodes), "operator"), now.nodes.size());
  }
  return "";
}

std::string difference_in_results(const Trace& trace, const Recording& recording,
                                  const std::vector<at::Tensor>& inputs) {
  const Unwatched unwatched;
  std::vector<c10::IValue> slots = make_slots(trace, inputs);
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    run_node(node, slots);
    size_t k = 0;
    const std::vector<at::Tensor>& expected = recording.results[i];
    for (const Result& result : node.results) {
      for (ValueId id : result.ids) {
        if (k >= expected.size()) break;
        const at::Tensor& eager = expected[k++];
        if (id != kNoValue && !is_equal(slots[id].toTensor(), eager)) {
          return fmt::format("{}: its result differs", place_of(node, i));
        }
      }
    }
  }
  return "";
}

}  // namespace tensorpack
