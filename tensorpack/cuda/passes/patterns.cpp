// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/passes/patterns.h"

#include "tensorpack/cuda/kernels/columns.h"

namespace tensorpack::cuda {

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
