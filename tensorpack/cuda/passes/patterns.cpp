// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/passes/patterns.h"

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {

bool is_column_image(const Value& value, c10::DeviceType device) {
  return value.options.device().type() == device && value.sizes.size() == 4 &&
         value.storage_bytes > 0 && value.sizes[1] <= kCounters * 32 &&
         has_kernel_type(value.options.dtype().toScalarType()) &&
         is_column_matrix(value.sizes, value.strides);
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

void move_bias_gradient(TraceEditor& editor, int32_t convolution, int32_t here, ValueId grad) {
  const ValueId bias_gradient = drop_bias_gradient(editor, convolution);
  editor.insert(here,
                make_node(editor.trace(), find_operator("aten::sum", "dim_IntList"),
                          {tensor_argument(grad), literal_argument(std::vector<int64_t>{0, 2, 3}),
                           literal_argument(false), literal_argument({})},
                          {bias_gradient}, editor.node(convolution).scope));
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
