// SPDX-License-Identifier: Apache-2.0
// Note [In-place operators]
// relu_() in a model, and the add_() by which autograd accumulates gradients, overwrite memory that
// a fused kernel would never write. Where a result is all there is in its memory, but for views
// that are made later, the operator may as well make a new one, and later nodes read that.
#include <map>
#include <optional>
#include <string>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

std::optional<c10::OperatorHandle> functional_form(const Node& node) {
  static const std::map<std::string, std::string> table = {
      {"aten::relu_", "aten::relu"}, {"aten::leaky_relu_", "aten::leaky_relu"},
      {"aten::add_", "aten::add"},   {"aten::sub_", "aten::sub"},
      {"aten::mul_", "aten::mul"},   {"aten::div_", "aten::div"},
  };
  const c10::OperatorName& name = node.op.operator_name();
  const auto found = table.find(name.name);
  if (found == table.end()) return std::nullopt;
  const std::string& overload = name.overload_name;
  if (!overload.empty() && overload != "Tensor" && overload != "Scalar") return std::nullopt;
  return find_operator(found->second.c_str(), overload.c_str());
}

bool is_dense(const Value& value) {
  return value.storage_bytes ==
         elements_of(value) * static_cast<int64_t>(value.options.dtype().itemsize());
}

// A tensor of one number decides neither the type nor the layout of a result.
bool is_one_number(const Value& value) {
  return value.sizes.empty() && c10::isFloatingType(value.options.dtype().toScalarType());
}

// A new tensor would look the same: every tensor is laid out as the one that is overwritten.
bool keeps_geometry(const TraceEditor& editor, const Node& node) {
  const Value& target = editor.value(tensor_at(node, 0));
  bool same = is_dense(target) && c10::isFloatingType(target.options.dtype().toScalarType());
  node.for_each_argument([&](ValueId id) {
    same &= is_same_geometry(editor.value(id), target) ||
            (is_one_number(editor.value(id)) && !target.sizes.empty());
  });
  return same;
}

// The other values in the memory of `target`; false if they were there before the node.
bool are_later_views(const TraceEditor& editor, ValueId target, int32_t position) {
  for (ValueId id : editor.values_in(editor.value(target).storage)) {
    if (id == target) continue;
    const Node* producer = editor.producer(id);
    if (producer == nullptr || !producer->is_view || editor.value(id).producer <= position) {
      return false;
    }
  }
  return true;
}

}  // namespace

void make_functional(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  for (int32_t i = 0; i < editor.size(); ++i) {
    const auto functional = functional_form(editor.node(i));
    if (!functional) continue;
    const ValueId target = tensor_at(editor.node(i), 0);
    const Value& value = editor.value(target);
    if (value.kind != ValueKind::kComputed || value.options.device().type() != device ||
        !are_later_views(editor, target, i) || result_at(editor.node(i), 0) != target ||
        !keeps_geometry(editor, editor.node(i))) {
      continue;
    }
    Value made = value;
    made.storage = -1;
    made.producer = i;
    const ValueId result = editor.add_value(std::move(made));
    Node& node = editor.edit(i);
    node.op = *functional;
    node.writes.clear();
    node.results[0].ids[0] = result;
    for (ValueId view : editor.values_in(editor.value(target).storage)) {
      if (view != target && view != result) {
        trace.values[view].storage = trace.values[result].storage;
      }
    }
    editor.replace_uses(target, result, i + 1);
    editor.commit();
  }
}

}  // namespace tensorpack::cuda
