// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// Small ones take no longer than their launch, whoever adds up.
constexpr int64_t kSmallestBytes = 1 << 18;

bool is_data(const Value& value, c10::DeviceType device) {
  return value.options.device().type() == device && value.storage_bytes > 0 &&
         has_kernel_type(value.options.dtype().toScalarType());
}

// Over the rows of a matrix, or the pixels of images.
bool is_column_sum(const TraceEditor& editor, const Node& node, c10::DeviceType device) {
  if (!is_op(node, "aten::sum.dim_IntList")) return false;
  const c10::IValue& dims = node.arguments[1].literal;
  const Value& input = editor.value(tensor_at(node, 0));
  const std::vector<int64_t> rows =
      input.sizes.size() == 4 ? std::vector<int64_t>{0, 2, 3} : std::vector<int64_t>{0};
  if (!dims.isIntList() || dims.toIntVector() != rows) return false;
  const bool keeps_rows = node.arguments[2].literal.toBool();
  return (input.sizes.size() == 2 || !keeps_rows) && is_data(input, device) &&
         is_data(editor.value(result_at(node, 0)), device) &&
         is_column_matrix(input.sizes, input.strides) && input.sizes[1] <= kCounters * 32 &&
         elements_of(input) * static_cast<int64_t>(input.options.dtype().itemsize()) >=
             kSmallestBytes;
}

}  // namespace

int fuse_column_sums(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  Counters counters;
  int fused = 0;
  for (int32_t i = 0; i < editor.size(); ++i) {
    if (!is_column_sum(editor, editor.node(i), device)) continue;
    const Node node = editor.node(i);
    const Value& result = editor.value(result_at(node, 0));
    const auto type = static_cast<int64_t>(result.options.dtype().toScalarType());
    const ValueId counted = counters.in(editor, editor.value(tensor_at(node, 0)).options.device());
    editor.fuse({i}, make_node(trace, column_sum_operator(),
                               {tensor_argument(tensor_at(node, 0)), tensor_argument(counted),
                                node.arguments[2], literal_argument(type)},
                               {result_at(node, 0)}, node.scope));
    ++fused;
  }
  return fused;
}

}  // namespace tensorpack::cuda
