// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/passes/patterns.h"

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

bool is_sum_over_rows(const TraceEditor& editor, const Node& node, const Value& matrix) {
  if (!is_op(node, "aten::sum.dim_IntList")) return false;
  const c10::IValue& dims = node.arguments[1].literal;
  const std::vector<int64_t> rows =
      matrix.sizes.size() == 2 ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 2, 3};
  const Value& result = editor.value(result_at(node, 0));
  return dims.isIntList() && dims.toIntVector() == rows && is_contiguous(result) &&
         has_kernel_type(result.options.dtype().toScalarType());
}

// One number may stand for both directions, and none for something else.
std::vector<int64_t> pair_at(const Node& node, size_t argument, std::vector<int64_t> otherwise) {
  const c10::IValue& literal = node.arguments.at(argument).literal;
  if (!literal.isIntList()) return {};
  return literal.toIntVector().empty() ? otherwise : height_and_width(node, argument);
}

// Without dilation, and with windows that begin inside.
std::optional<PoolWindow> plain_window(const Node& node, size_t first) {
  PoolWindow window;
  window.kernel = pair_at(node, first, {});
  window.stride = pair_at(node, first + 1, window.kernel);  // its size if none is given
  window.padding = pair_at(node, first + 2, {0, 0});
  const c10::IValue& ceil = node.arguments.at(first + 4).literal;
  const bool is_plain = window.kernel.size() == 2 && window.stride.size() == 2 &&
                        window.padding.size() == 2 && window.is_small() &&
                        pair_at(node, first + 3, {1, 1}) == std::vector<int64_t>{1, 1} &&
                        ceil.isBool() && !ceil.toBool();
  return is_plain ? std::optional(window) : std::nullopt;
}

bool is_image(const Value& value, c10::DeviceType device) {
  return value.sizes.size() == 4 && value.options.device().type() == device &&
         has_kernel_type(value.options.dtype().toScalarType()) &&
         is_column_matrix(value.sizes, value.strides);
}

}  // namespace

std::optional<PoolWindow> pool_window(const TraceEditor& editor, int32_t position,
                                      c10::DeviceType device) {
  const Node& node = editor.node(position);
  if (!is_op(node, "aten::max_pool2d_with_indices")) return std::nullopt;
  const auto window = plain_window(node, 1);
  const ValueId input = tensor_at(node, 0), output = result_at(node, 0);
  const ValueId indices = result_at(node, 1);
  if (!window || !is_image(editor.value(input), device) ||
      !is_image(editor.value(output), device) || indices == kNoValue ||
      !editor.is_private(indices) ||
      window->output_size(editor.value(input).sizes) != editor.value(output).sizes) {
    return std::nullopt;
  }
  for (int32_t reader : editor.readers(indices)) {
    const Node& backward = editor.node(reader);
    if (!is_op(backward, "aten::max_pool2d_with_indices_backward") ||
        tensor_at(backward, 1) != input || tensor_at(backward, 7) != indices ||
        !plain_window(backward, 2) || !is_image(editor.value(result_at(backward, 0)), device)) {
      return std::nullopt;
    }
  }
  return window;
}

int32_t only_reader(const TraceEditor& editor, ValueId id) {
  return editor.is_private(id) && editor.readers(id).size() == 1 ? editor.readers(id)[0] : -1;
}

ValueId addend(const TraceEditor& editor, const Node& node, ValueId id) {
  if (!is_op(node, "aten::add.Tensor") || !is_number(node, 2, 1)) return kNoValue;
  const ValueId a = tensor_at(node, 0), b = tensor_at(node, 1);
  if (a == b || a == kNoValue || b == kNoValue) return kNoValue;
  if (!is_same_geometry(editor.value(a), editor.value(b)) ||
      !is_same_geometry(editor.value(a), editor.value(result_at(node, 0)))) {
    return kNoValue;
  }
  return a == id ? b : b == id ? a : kNoValue;
}

bool is_column_image(const Value& value, c10::DeviceType device) {
  return value.options.device().type() == device && value.sizes.size() == 4 &&
         value.storage_bytes > 0 && value.sizes[1] <= kCounters * 32 &&
         has_kernel_type(value.options.dtype().toScalarType()) &&
         is_column_matrix(value.sizes, value.strides);
}

bool is_dense_data(const Value& value, c10::DeviceType device) {
  return value.options.device().type() == device && is_contiguous(value) &&
         has_kernel_type(value.options.dtype().toScalarType());
}

std::vector<int64_t> height_and_width(const Node& node, size_t argument) {
  const c10::IValue& literal = node.arguments.at(argument).literal;
  if (!literal.isIntList()) return {};
  const std::vector<int64_t> given = literal.toIntVector();
  return given.size() == 1 ? std::vector<int64_t>{given[0], given[0]} : given;
}

bool is_written_between(const TraceEditor& editor, ValueId id, int32_t first, int32_t last) {
  for (int32_t writer : editor.writers(editor.value(id).storage)) {
    if (writer > first && writer < last) return true;
  }
  return false;
}

void drop_bias(TraceEditor& editor, int32_t convolution) {
  Node& node = editor.edit(convolution);
  std::erase(node.reads, editor.value(tensor_at(node, kConvolutionBias)).storage);
  node.arguments[kConvolutionBias] = literal_argument({});
}

ValueId drop_bias_gradient(TraceEditor& editor, int32_t convolution) {
  Node& node = editor.edit(convolution);
  const ValueId gradient = result_at(node, 2);
  c10::List<bool> mask = node.arguments[kConvolutionOutputMask].literal.toBoolList().copy();
  mask.set(2, false);
  node.arguments[kConvolutionOutputMask] = literal_argument(mask);
  node.results[2].ids = {kNoValue};
  editor.disown(gradient);
  return gradient;
}

void drop_parameter_gradients(TraceEditor& editor, int32_t convolution) {
  Node& node = editor.edit(convolution);
  node.arguments[kConvolutionOutputMask] = literal_argument(c10::List<bool>({true, false, false}));
  for (const size_t result : {1, 2}) {
    if (const ValueId id = result_at(node, result); id != kNoValue) editor.disown(id);
    node.results[result].ids = {kNoValue};
  }
}

Node take_parameter_gradients(TraceEditor& editor, int32_t convolution) {
  Node node = editor.node(convolution);
  c10::List<bool> mask = node.arguments[kConvolutionOutputMask].literal.toBoolList().copy();
  mask.set(0, false);
  node.arguments[kConvolutionOutputMask] = literal_argument(mask);
  node.results[0].ids = {kNoValue};
  drop_parameter_gradients(editor, convolution);
  return node;
}

bool is_convolution_backward(const Node& node) {
  return is_op(node, "aten::convolution_backward") &&
         node.arguments[kConvolutionOutputMask].literal.isBoolList();
}

void move_bias_gradient(TraceEditor& editor, int32_t convolution, int32_t here, ValueId grad) {
  const ValueId bias_gradient = drop_bias_gradient(editor, convolution);
  editor.insert(here,
                make_node(editor.trace(), find_operator("aten::sum", "dim_IntList"),
                          {tensor_argument(grad), literal_argument(std::vector<int64_t>{0, 2, 3}),
                           literal_argument(false), literal_argument({})},
                          {bias_gradient}, editor.node(convolution).scope));
}

RowSum find_row_sum(const TraceEditor& editor, ValueId id, std::optional<int64_t> columns) {
  const Value& value = editor.value(id);
  if (!has_kernel_type(value.options.dtype().toScalarType()) ||
      !editor.writers(value.storage).empty()) {
    return {};
  }
  for (ValueId view : editor.values_in(value.storage)) {
    const Value& seen = editor.value(view);
    if (elements_of(seen) != elements_of(value) || seen.options.dtype() != value.options.dtype() ||
        !is_column_matrix(seen.sizes, seen.strides) || seen.sizes[1] > kCounters * 32 ||
        (columns && seen.sizes[1] != *columns)) {
      continue;
    }
    for (int32_t reader : editor.readers(view)) {
      if (is_sum_over_rows(editor, editor.node(reader), seen)) return {reader, seen.sizes[1]};
    }
  }
  return {};
}

bool fuse_with_row_sum(TraceEditor& editor, std::vector<int32_t> nodes, ValueId summed,
                       const RowSum& sum, Node fused) {
  // The sum may read a view, which has to follow the nodes: it reads the value itself instead.
  const ValueId view = tensor_at(editor.node(sum.position), 0);
  editor.edit(sum.position).arguments[0].ids[0] = summed;
  editor.commit();
  nodes.push_back(sum.position);
  if (editor.fuse(nodes, std::move(fused))) return true;
  editor.edit(sum.position).arguments[0].ids[0] = view;
  editor.commit();
  return false;
}

ValueId Counters::in(TraceEditor& editor, c10::Device device) {
  if (id_ == kNoValue) {
    const at::Tensor counters = make_counters(device);
    id_ = editor.add_value({.kind = ValueKind::kConstant,
                            .tensor = counters,
                            .sizes = counters.sizes().vec(),
                            .strides = counters.strides().vec(),
                            .options = counters.options(),
                            .storage_bytes = static_cast<int64_t>(counters.nbytes())});
  }
  return id_;
}

}  // namespace tensorpack::cuda
