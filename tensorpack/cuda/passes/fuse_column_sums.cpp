// SPDX-License-Identifier: Apache-2.0
// Note [Concatenations and sums]
// Layers over one input, as queries, keys and values have them, are one product of matrices. Their
// gradients are put side by side for it, and read again for the biases. One kernel does both. It
// counts in a constant of its own: where a sum has left the path (use_side_stream), what counts in
// the same one as that would wait for it.
#include <algorithm>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
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

int64_t bytes_of(const Value& value) {
  return elements_of(value) * static_cast<int64_t>(value.options.dtype().itemsize());
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
         bytes_of(input) >= kSmallestBytes;
}

// Of matrices side by side, rows of neighbouring elements each.
bool is_concatenation(const TraceEditor& editor, const Node& node, c10::DeviceType device) {
  if (!is_op(node, "aten::cat")) return false;
  const Value& all = editor.value(result_at(node, 0));
  const c10::IValue& dim = node.arguments[1].literal;
  const auto last = static_cast<int64_t>(all.sizes.size()) - 1;
  const std::vector<ValueId>& parts = node.arguments[0].ids;
  if (!is_data(all, device) || !is_contiguous(all) || last < 1 || !dim.isInt() ||
      (dim.toInt() != last && dim.toInt() != -1) || parts.size() > kMostConcatenated) {
    return false;
  }
  return std::all_of(parts.begin(), parts.end(), [&](ValueId id) {
    if (id == kNoValue) return false;
    const Value& part = editor.value(id);
    return is_data(part, device) && part.sizes.size() == all.sizes.size() &&
           elements_of(part) > 0 && part.options.dtype() == all.options.dtype() &&
           part.options.device() == all.options.device() &&
           row_stride(part.sizes, part.strides).has_value();
  });
}

bool fuse_concatenation(TraceEditor& editor, int32_t position, Counters& counters) {
  const Node cat = editor.node(position);
  const ValueId all = result_at(cat, 0);
  if (bytes_of(editor.value(all)) < kSmallestBytes) return false;
  const RowSum sum = find_row_sum(editor, all, editor.value(all).sizes.back());
  if (sum.position < 0) return false;
  const ValueId sums = result_at(editor.node(sum.position), 0);
  const Value result = editor.value(sums);    // values may move
  if (result.sizes.size() > 2) return false;  // of images
  const auto type = static_cast<int64_t>(result.options.dtype().toScalarType());
  const ValueId counted = counters.in(editor, result.options.device());
  return fuse_with_row_sum(
      editor, {position}, all, sum,
      make_node(editor.trace(), concat_sum_operator(),
                {cat.arguments[0], tensor_argument(counted),
                 literal_argument(result.sizes.size() == 2), literal_argument(type)},
                {all, sums}, cat.scope));
}

int fuse_concatenations(TraceEditor& editor, c10::DeviceType device) {
  Counters counters;
  int fused = 0;
  for (int32_t i = 0; i < editor.size(); ++i) {
    if (!is_concatenation(editor, editor.node(i), device)) continue;
    if (!fuse_concatenation(editor, i, counters)) continue;
    ++fused;
    --i;  // another one may stand here now
  }
  return fused;
}

}  // namespace

int fuse_column_sums(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  int fused = fuse_concatenations(editor, device);
  Counters counters;
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
