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
// There is a fork in front of each. A node that needs its results, or would write what it reads,
// waits for it and all that was issued before it. What is read aside is kept until then, and if
// that is much, the oldest are awaited, which mostly are done.
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <string>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"
#include "tensorpack/graph/memory_use.h"

namespace tensorpack::cuda {
namespace {

// What is larger fills the device by itself: products and sums. Products of up to 1.5e10 operations
// (ResNet-50, 64 images) gain by it; those of 1.9e10 and more (256 images, GPT-2) did not.
constexpr double kMostOperations = 1.6e10;
constexpr int64_t kMostElements = int64_t{1} << 18;
// Of memory that is held for what is aside alone.
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

// A node that was issued to the side stream and not awaited yet.
struct Issued {
  Issued(const Trace& trace, const Node& node, int64_t the_number)
      : number(the_number), read(storages_read(trace, node)), made(storages_made(trace, node)) {
    if (counts(node)) made.insert(trace.values[tensor_at(node, 1)].storage);
    // What is elsewhere, such as a number on the host, is read when the node is issued.
    const c10::Device device = trace.values[tensor_at(node, 0)].options.device();
    node.for_each_argument([&](ValueId id) {
      const Value& value = trace.values[id];
      if (!value.is_persistent() && value.options.device() == device) kept.insert(id);
    });
  }

  bool conflicts_with(const Trace& trace, const Node& node) const {
    const std::set<StorageId> makes = storages_made(trace, node);
    return have_common(made, storages_read(trace, node)) || have_common(made, makes) ||
           have_common(read, makes);
  }

  int64_t number;
  std::set<StorageId> read, made;
  std::set<ValueId> kept = {};
};

Node node_of(const Trace& trace, const char* op, std::vector<ValueId> tensors, int64_t number) {
  std::vector<Argument> arguments = {{Argument::Kind::kTensorList, std::move(tensors), {}},
                                     literal_argument(number)};
  return make_node(trace, find_operator(op), std::move(arguments), {}, "");
}

// Puts forks and waits into a trace.
class SideStream {
 public:
  explicit SideStream(Trace& trace) : editor_(trace), memory_(trace) {}

  void run(const std::vector<char>& is_aside) {
    for (int32_t i = 0; i < editor_.size(); ++i) {
      const Node& node = editor_.node(i);
      if (node.is_view) continue;
      // An addition follows what it adds, or stays.
      const size_t conflicts = count_to_await(node);
      if (is_aside[i] && (!is_addition(node) || conflicts > 0)) {
        keep_little(i);
        issue(i);
      } else {
        await(conflicts, i);
        keep_little(i);
      }
    }
    await(pending_.size(), editor_.size());
    editor_.commit();
  }

 private:
  // Of those that are pending, in order: up to the last that the node must come behind.
  size_t count_to_await(const Node& node) const {
    size_t count = pending_.size();
    while (count > 0 && !pending_[count - 1].conflicts_with(editor_.trace(), node)) --count;
    return count;
  }

  // What is held while the node runs for the sake of those that are pending alone.
  int64_t kept_bytes(int32_t position) const {
    std::set<StorageId> storages;
    for (const Issued& issued : pending_) storages.insert(issued.read.begin(), issued.read.end());
    return std::accumulate(storages.begin(), storages.end(), int64_t{0},
                           [&](int64_t sum, StorageId storage) {
                             const bool is_extra = !memory_.is_held(storage, position);
                             return sum + (is_extra ? memory_.bytes(storage) : 0);
                           });
  }

  void keep_little(int32_t before) {
    while (kept_bytes(before) > kMostKeptBytes) await(1, before);
  }

  void issue(int32_t position) {
    const Trace& trace = editor_.trace();
    const Node& node = editor_.node(position);
    const ValueId first = tensor_at(node, 0);
    const int64_t number = ++issued_;
    pending_.emplace_back(trace, node, number);
    editor_.insert(position, node_of(trace, "tensorpack::begin_side_stream", {first}, number));
    editor_.insert(position + 1, node_of(trace, "tensorpack::end_side_stream", {first}, number));
  }

  // Has the node at `before` come behind the oldest `count`.
  void await(size_t count, int32_t before) {
    if (count == 0) return;
    std::set<ValueId> kept;
    const auto end = pending_.begin() + static_cast<std::ptrdiff_t>(count);
    for (auto issued = pending_.begin(); issued != end; ++issued) kept.merge(issued->kept);
    const int64_t number = pending_[count - 1].number;
    pending_.erase(pending_.begin(), end);
    editor_.insert(before, node_of(editor_.trace(), "tensorpack::join_side_stream",
                                   {kept.begin(), kept.end()}, number));
  }

  TraceEditor editor_;
  MemoryUse memory_;
  std::vector<Issued> pending_;  // in order
  int64_t issued_ = 0;
};

}  // namespace

void use_side_stream(Trace& trace, c10::DeviceType device) {
  if (std::any_of(trace.nodes.begin(), trace.nodes.end(),
                  [](const Node& node) { return node.is_collective; })) {
    return;  // those are moved to where they overlap best
  }
  split_convolutions(trace, device);
  SideStream(trace).run(nodes_aside(trace, device));
}

// What they do on CUDA is in cuda/side_stream.cpp. Elsewhere there is one stream.
TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("begin_side_stream(Tensor[] tensors, int number) -> ()");
  library.def("end_side_stream(Tensor[] tensors, int number) -> ()");
  library.def("join_side_stream(Tensor[] tensors, int number) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("begin_side_stream", [](at::TensorList, int64_t) {});
  library.impl("end_side_stream", [](at::TensorList, int64_t) {});
  library.impl("join_side_stream", [](at::TensorList, int64_t) {});
}

}  // namespace tensorpack::cuda
