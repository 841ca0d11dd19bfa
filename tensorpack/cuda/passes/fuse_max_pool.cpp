// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

class MaxPoolFusion {
 public:
  MaxPoolFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (const auto window = pool_window(editor_, i, device_)) fused += fuse(i, *window);
    }
    return fused;
  }

 private:
  int fuse(int32_t position, const PoolWindow& window) {
    const Node forward = editor_.node(position);
    const ValueId input = tensor_at(forward, 0), indices = result_at(forward, 1);
    const std::vector<int64_t> input_size = editor_.value(input).sizes;
    const ValueId places = add_value_like(editor_, indices, at::kByte);

    const std::vector<int32_t> backward = editor_.readers(indices);
    editor_.remove(position);
    editor_.insert(position,
                   make_node(editor_.trace(), max_pool_operator(),
                             {tensor_argument(input), literal_argument(window.kernel),
                              literal_argument(window.stride), literal_argument(window.padding)},
                             {result_at(forward, 0), places}, forward.scope));
    for (int32_t reader : backward) {
      const Node& node = editor_.node(reader);
      editor_.remove(reader);
      editor_.insert(reader,
                     make_node(editor_.trace(), max_pool_backward_operator(),
                               {tensor_argument(tensor_at(node, 0)), tensor_argument(places),
                                literal_argument(input_size), literal_argument(window.kernel),
                                literal_argument(window.stride), literal_argument(window.padding)},
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
