// SPDX-License-Identifier: Apache-2.0
// Note [A side stream]
// Much of a backward pass is awaited by the update alone. Kernels of small and middling networks
// leave room on the device, so it is issued to a stream of its own, off the path that everything
// else waits for. That path has the higher priority where the step is captured.
//
// - A node leaves the path if no later convolution or product of matrices depends on it, and there
//   is one to run beside before its results are needed. Gradients of weights do, those of inputs do
//   not, nor does the last of all. The sum of two gradients of one weight follows them.
// - The gradient of a weight is issued ahead of that of the layer's input, which mostly leaves room
//   for it.
//
// There is a fork in front of each, and one join, in front of the first node that needs any of the
// results, or would write what is read. Whatever is read there is kept until then, and if that is
// much, the stream is awaited earlier.
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// What is larger fills the device by itself: products and sums. Products of up to 1.5e10 operations
// (ResNet-50, 64 images) gain by it; those of 1.9e10 and more (256 images, GPT-2) did not.
constexpr double kMostOperations = 1.6e10;
constexpr int64_t kMostElements = int64_t{1} << 18;
// Of memory, until the join.
constexpr int64_t kMostKeptBytes = int64_t{1} << 28;

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

// By how libtorch and our own operators call them.
bool is_product(const Node& node) {
  const std::string& name = node.op.operator_name().name;
  return name.ends_with("mm") || name.ends_with("convolution") ||
         name.ends_with("convolution_backward") || name.ends_with("weight_gradient") ||
         name.ends_with("filter_gradient");
}

// The sum of two gradients.
bool is_addition(const Node& node) { return is_op(node, "aten::add.Tensor"); }

// In a constant that nodes share.
bool counts(const Node& node) { return is_op(node, "tensorpack::column_sum"); }

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

bool is_small(const Trace& trace, const Node& node, c10::DeviceType device) {
  if (is_op(node, "tensorpack::filter_gradient")) return true;
  const bool is_sum = is_op(node, "aten::sum.dim_IntList") || counts(node) || is_addition(node);
  if (!is_sum && !is_op(node, "aten::mm") && !is_convolution_backward(node)) return false;
  const Value& first = trace.values[tensor_at(node, 0)];
  if (first.kind != ValueKind::kComputed || first.options.device().type() != device ||
      !node.writes.empty()) {
    return false;
  }
  return is_sum ? elements_of(first) <= kMostElements
                : operations_of(trace, node) <= kMostOperations;
}

// The gradient of the weight in front of that of the input, as nodes of their own.
void split_convolutions(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  for (int32_t i = 0; i < editor.size(); ++i) {
    const Node& node = editor.node(i);
    if (!is_convolution_backward(node) || !is_small(trace, node, device)) continue;
    const auto mask = mask_of(node);
    if (!mask[0] || !mask[1]) continue;
    editor.insert(i, take_parameter_gradients(editor, i));
    editor.commit();
    ++i;
  }
}

// The nodes that leave the path.
std::vector<char> nodes_aside(const Trace& trace, c10::DeviceType device) {
  std::vector<char> is_aside(trace.nodes.size(), 0);
  const auto end = static_cast<int32_t>(trace.nodes.size());
  std::set<StorageId> path;             // what products behind the node depend on
  std::map<StorageId, int32_t> needed;  // the first node that needs it
  int32_t next_product = end;
  for (int32_t i = end - 1; i >= 0; --i) {
    const Node& node = trace.nodes[i];
    if (node.is_view) continue;
    const std::set<StorageId> made = storages_made(trace, node), read = storages_read(trace, node);
    const bool is_on_path = have_common(made, path);
    int32_t needed_at = end;
    for (const StorageId storage : made) {
      if (const auto it = needed.find(storage); it != needed.end()) {
        needed_at = std::min(needed_at, it->second);
      }
    }
    is_aside[i] = !is_on_path && is_small(trace, node, device) && next_product < needed_at;
    // What follows its arguments needs them when it is needed itself.
    const bool follows = is_aside[i] && is_addition(node);
    for (const StorageId storage : read) {
      int32_t& at = needed.try_emplace(storage, end).first->second;
      at = std::min(at, follows ? needed_at : i);
    }
    if (is_on_path || is_product(node)) path.insert(read.begin(), read.end());
    if (is_product(node)) next_product = i;
  }
  return is_aside;
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
    if (counts(node)) made.insert(trace.values[tensor_at(node, 1)].storage);
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
  const std::vector<char> is_aside = nodes_aside(trace, device);
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
    const bool conflicts = pending.conflicts_with(trace, node);
    // An addition follows what it adds, or stays.
    const bool leaves = is_aside[i] && (!is_addition(node) || conflicts);
    if (!leaves) {
      if (conflicts) join(i);
      continue;
    }
    if (pending.kept_bytes > kMostKeptBytes) join(i);
    const ValueId first = tensor_at(node, 0);
    editor.insert(i, node_of(trace, "tensorpack::begin_side_stream", {first}));
    editor.insert(i + 1, node_of(trace, "tensorpack::end_side_stream", {first}));
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
