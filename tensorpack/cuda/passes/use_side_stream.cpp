// SPDX-License-Identifier: Apache-2.0
// Note [A side stream]
// The gradient of a weight is not needed before the update, and in a small network its kernel
// leaves most of the device idle. Such kernels are issued to a stream of their own, beside the rest
// of the backward pass: a fork in front of each, one join in front of the first node that needs any
// of them, or would write what they read. Whatever they read is kept until then, and if that is
// much, they are awaited earlier.
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <set>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// What is larger fills the device by itself.
constexpr double kMostOperations = 4e9;
// Of memory, until the join.
constexpr int64_t kMostKeptBytes = int64_t{1} << 28;
// Between a node and what needs its results, or there is nothing to run beside it.
constexpr int32_t kFewestNodesBetween = 3;

std::set<StorageId> storages_read(const Trace& trace, const Node& node) {
  std::set<StorageId> found;
  node.for_each_argument([&](ValueId id) { found.insert(trace.values[id].storage); });
  return found;
}

std::set<StorageId> storages_made(const Trace& trace, const Node& node) {
  std::set<StorageId> found(node.writes.begin(), node.writes.end());
  node.for_each_result([&](ValueId id) { found.insert(trace.values[id].storage); });
  return found;
}

bool have_common(const std::set<StorageId>& a, const std::set<StorageId>& b) {
  return std::any_of(a.begin(), a.end(), [&](StorageId storage) { return b.contains(storage); });
}

// ---- which nodes

double operations_of(const Trace& trace, const Node& node) {
  const Value& first = trace.values[tensor_at(node, 0)];
  const auto elements = static_cast<double>(elements_of(first));
  if (is_op(node, "aten::mm")) {
    return 2 * elements * static_cast<double>(trace.values[tensor_at(node, 1)].sizes[1]);
  }
  const Value& weight = trace.values[tensor_at(node, 2)];
  return 2 * elements / static_cast<double>(first.sizes[1]) *
         static_cast<double>(elements_of(weight));
}

std::array<bool, 3> mask_of(const Node& node) {
  const c10::List<bool> mask = node.arguments[kConvolutionOutputMask].literal.toBoolList();
  return {mask.get(0), mask.get(1), mask.get(2)};
}

// The first node after `position` that works on what the one there makes.
int32_t first_use(const TraceEditor& editor, int32_t position) {
  const std::set<StorageId> made = storages_made(editor.trace(), editor.node(position));
  for (int32_t i = position + 1; i < editor.size(); ++i) {
    const Node& node = editor.node(i);
    if (!node.is_view && have_common(made, storages_read(editor.trace(), node))) return i;
  }
  return editor.size();
}

bool is_small(const TraceEditor& editor, int32_t position, c10::DeviceType device) {
  const Node& node = editor.node(position);
  if (is_op(node, "tensorpack::filter_gradient")) return true;
  const bool is_convolution = is_op(node, "aten::convolution_backward");
  if (!is_convolution && !is_op(node, "aten::mm")) return false;
  if (is_convolution && !node.arguments[kConvolutionOutputMask].literal.isBoolList()) return false;
  const Value& first = editor.value(tensor_at(node, 0));
  return first.kind == ValueKind::kComputed && first.options.device().type() == device &&
         node.writes.empty() && operations_of(editor.trace(), node) <= kMostOperations;
}

// The gradient of the weight in front of that of the input, as nodes of their own.
void split_convolutions(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  for (int32_t i = 0; i < editor.size(); ++i) {
    if (!is_op(editor.node(i), "aten::convolution_backward") || !is_small(editor, i, device)) {
      continue;
    }
    const auto mask = mask_of(editor.node(i));
    if (!mask[0] || !mask[1]) continue;
    Node of_weight = editor.node(i);
    of_weight.arguments[kConvolutionOutputMask] =
        literal_argument(c10::List<bool>({false, mask[1], mask[2]}));
    of_weight.results[0].ids = {kNoValue};
    Node& of_input = editor.edit(i);
    of_input.arguments[kConvolutionOutputMask] =
        literal_argument(c10::List<bool>({true, false, false}));
    of_input.results[1].ids = of_input.results[2].ids = {kNoValue};
    of_weight.for_each_result([&](ValueId id) { editor.disown(id); });
    editor.insert(i, std::move(of_weight));
    editor.commit();
    ++i;
  }
}

// ---- forks and joins

// What was issued to the side stream and not awaited yet.
struct Pending {
  std::set<StorageId> read = {}, made = {};
  std::set<ValueId> kept = {};  // until the join
  int64_t kept_bytes = 0;

  bool conflicts_with(const Trace& trace, const Node& node) const {
    if (node.is_view) return false;
    const std::set<StorageId> makes = storages_made(trace, node);
    return have_common(made, storages_read(trace, node)) || have_common(made, makes) ||
           have_common(read, makes);
  }

  void add(const Trace& trace, const Node& node) {
    node.for_each_argument([&](ValueId id) {
      const Value& value = trace.values[id];
      if (!value.is_persistent()) kept.insert(id);
      if (!value.is_persistent() && !read.contains(value.storage)) {
        kept_bytes += value.storage_bytes;
      }
    });
    read.merge(storages_read(trace, node));
    made.merge(storages_made(trace, node));
  }
};

Node node_of(const Trace& trace, const char* op, std::vector<ValueId> tensors) {
  return make_node(trace, find_operator(op),
                   {Argument{Argument::Kind::kTensorList, std::move(tensors), {}}}, {}, "");
}

}  // namespace

void use_side_stream(Trace& trace, c10::DeviceType device) {
  if (std::any_of(trace.nodes.begin(), trace.nodes.end(),
                  [](const Node& node) { return node.is_collective; })) {
    return;  // those are moved to where they overlap best
  }
  split_convolutions(trace, device);
  TraceEditor editor(trace);
  Pending pending;
  const auto join = [&](int32_t before) {
    if (pending.kept.empty()) return;
    editor.insert(before, node_of(trace, "tensorpack::join_side_stream",
                                  {pending.kept.begin(), pending.kept.end()}));
    pending = {};
  };
  for (int32_t i = 0; i < editor.size(); ++i) {
    const Node& node = editor.node(i);
    const bool is_convolution = is_op(node, "aten::convolution_backward");
    if (!is_small(editor, i, device) || (is_convolution && mask_of(node)[0]) ||
        first_use(editor, i) - i <= kFewestNodesBetween) {
      if (pending.conflicts_with(trace, node)) join(i);
      continue;
    }
    if (pending.kept_bytes > kMostKeptBytes) join(i);
    const ValueId grad = tensor_at(node, 0);
    editor.insert(i, node_of(trace, "tensorpack::begin_side_stream", {grad}));
    editor.insert(i + 1, node_of(trace, "tensorpack::end_side_stream", {grad}));
    pending.add(trace, node);
  }
  join(editor.size());
  editor.commit();
}

// What they do on CUDA is in cuda/side_stream.cpp. Elsewhere there is one stream.
TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("begin_side_stream(Tensor[] tensors) -> ()");
  library.def("end_side_stream(Tensor[] tensors) -> ()");
  library.def("join_side_stream(Tensor[] tensors) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("begin_side_stream", [](at::TensorList) {});
  library.impl("end_side_stream", [](at::TensorList) {});
  library.impl("join_side_stream", [](at::TensorList) {});
}

}  // namespace tensorpack::cuda
