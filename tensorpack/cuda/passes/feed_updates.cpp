// SPDX-License-Identifier: Apache-2.0
// Note [Gradients of 16 bits]
// In mixed precision the gradient of a weight is cast to float for the update, which reads it once.
// The update's kernel can as well read what was cast, through the same views.
#include <algorithm>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

bool is_update(const Node& node) {
  return is_op(node, "tensorpack::sgd_") || is_op(node, "tensorpack::adam_");
}

// A cast to float that changes the type and nothing else.
bool is_cast(const TraceEditor& editor, const Node& node, c10::DeviceType device) {
  if (!is_op(node, "aten::_to_copy") || result_at(node, 0) == kNoValue) return false;
  const Value& source = editor.value(tensor_at(node, 0));
  const Value& result = editor.value(result_at(node, 0));
  return source.kind == ValueKind::kComputed && source.storage_bytes > 0 &&
         has_kernel_type(source.options.dtype().toScalarType()) &&
         result.options.dtype() == at::kFloat &&
         source.options.device() == result.options.device() &&
         source.options.device().type() == device && source.strides == result.strides &&
         editor.writers(source.storage).empty() && editor.writers(result.storage).empty();
}

// Nobody but updates reads the memory, if through views.
bool is_for_updates_alone(const TraceEditor& editor, StorageId storage) {
  for (ValueId id : editor.values_in(storage)) {
    if (editor.is_output(id)) return false;
    for (int32_t reader : editor.readers(id)) {
      if (!editor.node(reader).is_view && !is_update(editor.node(reader))) return false;
    }
  }
  return true;
}

}  // namespace

void feed_updates(Trace& trace, c10::DeviceType device) {
  TraceEditor editor(trace);
  for (int32_t i = 0; i < editor.size(); ++i) {
    if (!is_cast(editor, editor.node(i), device)) continue;
    const ValueId source = tensor_at(editor.node(i), 0), result = result_at(editor.node(i), 0);
    const StorageId storage = editor.value(result).storage;
    if (!is_for_updates_alone(editor, storage)) continue;
    for (ValueId view : editor.values_in(storage)) {
      if (view == result) continue;
      Value& value = trace.values[view];
      value.storage = trace.values[source].storage;
      value.storage_bytes = trace.values[source].storage_bytes;
      value.options = value.options.dtype(trace.values[source].options.dtype());
    }
    editor.remove(i);
    editor.replace_uses(result, source, i + 1);
    editor.commit();
    --i;
  }
}

}  // namespace tensorpack::cuda
