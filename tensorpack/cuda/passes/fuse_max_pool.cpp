// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/max_pool.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// One number may stand for both directions, and none for the kernel's own size.
std::vector<int64_t> pair_at(const Node& node, size_t argument, std::vector<int64_t> otherwise) {
  const c10::IValue& literal = node.arguments.at(argument).literal;
  if (!literal.isIntList()) return {};
  const std::vector<int64_t> given = literal.toIntVector();
  if (given.empty()) return otherwise;
  return given.size() == 1 ? std::vector<int64_t>{given[0], given[0]} : given;
}

PoolWindow window_of(const Node& node, size_t first) {
  PoolWindow window;
  window.kernel = pair_at(node, first, {});
  window.stride = pair_at(node, first + 1, window.kernel);
  window.padding = pair_at(node, first + 2, {0, 0});
  return window;
}

// Without dilation, and with windows that begin inside.
bool is_plain(const Node& node, size_t first, const PoolWindow& window) {
  return window.kernel.size() == 2 && window.stride.size() == 2 && window.padding.size() == 2 &&
         window.is_small() && pair_at(node, first + 3, {1, 1}) == std::vector<int64_t>{1, 1} &&
         node.arguments.at(first + 4).literal.isBool() &&
         !node.arguments.at(first + 4).literal.toBool();
}

Argument numbers(const std::vector<int64_t>& values) { return literal_argument(values); }

class MaxPoolFusion {
 public:
  MaxPoolFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (!is_forward(editor_.node(i))) continue;
      fused += fuse(i);
    }
    return fused;
  }

 private:
  bool is_image(ValueId id) const {
    const Value& value = editor_.value(id);
    return value.sizes.size() == 4 && value.options.device().type() == device_ &&
           has_kernel_type(value.options.dtype().toScalarType()) &&
           is_column_matrix(value.sizes, value.strides);
  }

  bool is_forward(const Node& node) const {
    if (!is_op(node, "aten::max_pool2d_with_indices")) return false;
    const PoolWindow window = window_of(node, 1);
    const ValueId input = tensor_at(node, 0), output = result_at(node, 0);
    if (!is_plain(node, 1, window) || !is_image(input) || !is_image(output)) return false;
    const ValueId indices = result_at(node, 1);
    if (indices == kNoValue || !editor_.is_private(indices)) return false;
    for (int32_t reader : editor_.readers(indices)) {
      if (!is_backward(editor_.node(reader), input, indices)) return false;
    }
    return window.output_size(editor_.value(input).sizes) == editor_.value(output).sizes;
  }

  bool is_backward(const Node& node, ValueId input, ValueId indices) const {
    return is_op(node, "aten::max_pool2d_with_indices_backward") && tensor_at(node, 1) == input &&
           tensor_at(node, 7) == indices && is_plain(node, 2, window_of(node, 2)) &&
           is_image(result_at(node, 0));
  }

  int fuse(int32_t position) {
    const Node forward = editor_.node(position);
    const PoolWindow window = window_of(forward, 1);
    const ValueId input = tensor_at(forward, 0), indices = result_at(forward, 1);
    const std::vector<int64_t> input_size = editor_.value(input).sizes;
    const ValueId places = add_value_like(editor_, indices, at::kByte);

    const std::vector<int32_t> backward = editor_.readers(indices);
    editor_.remove(position);
    editor_.insert(position, make_node(editor_.trace(), max_pool_operator(),
                                       {tensor_argument(input), numbers(window.kernel),
                                        numbers(window.stride), numbers(window.padding)},
                                       {result_at(forward, 0), places}, forward.scope));
    for (int32_t reader : backward) {
      const Node& node = editor_.node(reader);
      editor_.remove(reader);
      editor_.insert(reader,
                     make_node(editor_.trace(), max_pool_backward_operator(),
                               {tensor_argument(tensor_at(node, 0)), tensor_argument(places),
                                numbers(input_size), numbers(window.kernel), numbers(window.stride),
                                numbers(window.padding)},
                               {result_at(node, 0)}, node.scope));
    }
    editor_.commit();
    return 1 + static_cast<int>(backward.size());
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int fuse_max_pool(Trace& trace, c10::DeviceType device) {
  return MaxPoolFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
