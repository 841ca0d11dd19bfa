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
