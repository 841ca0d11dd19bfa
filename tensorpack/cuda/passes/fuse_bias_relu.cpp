// SPDX-License-Identifier: Apache-2.0
// Note [Biases of convolutions]
// libtorch adds a convolution's bias in a kernel of its own, and sums its gradient in another.
// Where a relu follows, the convolution is made without, and the bias goes with the relu, both
// ways.
#include "tensorpack/cuda/kernels/bias_relu.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

class BiasReluFusion {
 public:
  BiasReluFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (is_op(editor_.node(i), "aten::convolution")) fused += fuse_forward(i);
      if (is_op(editor_.node(i), "aten::convolution_backward")) fused += fuse_backward(i);
    }
    return fused;
  }

 private:
  bool is_matrix(ValueId id) const { return is_column_image(editor_.value(id), device_); }

  bool is_vector(ValueId id) const {
    const Value& value = editor_.value(id);
    return value.sizes.size() == 1 && is_contiguous(value) &&
           has_kernel_type(value.options.dtype().toScalarType());
  }

  int fuse_forward(int32_t position) {
    const ValueId bias = tensor_at(editor_.node(position), kConvolutionBias);
    const ValueId output = result_at(editor_.node(position), 0);
    if (bias == kNoValue || !is_vector(bias) || !is_matrix(output) || !editor_.is_private(output) ||
        editor_.readers(output).size() != 1) {
      return 0;
    }
    const int32_t relu = editor_.readers(output)[0];
    if (!is_op(editor_.node(relu), "aten::relu") ||
        !is_same_geometry(editor_.value(output), editor_.value(result_at(editor_.node(relu), 0))) ||
        is_written_between(editor_, bias, position, relu)) {
      return 0;
    }
    drop_bias(editor_, position);
    replace_node(editor_, relu, bias_relu_operator(),
                 {tensor_argument(output), tensor_argument(bias)},
                 {result_at(editor_.node(relu), 0)});
    return 1;
  }

  int fuse_backward(int32_t position) {
    const Node& backward = editor_.node(position);
    const ValueId grad = tensor_at(backward, 0), bias_grad = result_at(backward, 2);
    const c10::IValue& mask = backward.arguments[kConvolutionOutputMask].literal;
    if (bias_grad == kNoValue || !is_vector(bias_grad) || !is_matrix(grad) || !mask.isBoolList() ||
        !mask.toBoolList().get(2) || !editor_.writers(editor_.value(grad).storage).empty()) {
      return 0;
    }
    const int32_t relu = editor_.value(grad).producer;
    if (relu < 0 || !is_op(editor_.node(relu), "aten::threshold_backward") ||
        !is_number(editor_.node(relu), 2, 0)) {
      return 0;
    }
    const ValueId from = tensor_at(editor_.node(relu), 0),
                  output = tensor_at(editor_.node(relu), 1);
    if (!is_same_geometry(editor_.value(output), editor_.value(grad)) ||
        editor_.value(from).options.dtype() != editor_.value(grad).options.dtype()) {
      return 0;
    }
    drop_bias_gradient(editor_, position);
    const Value& value = editor_.value(grad);
    const auto type = editor_.value(bias_grad).options.dtype().toScalarType();
    const ValueId counters = counters_.in(editor_, value.options.device());
    replace_node(editor_, relu, bias_relu_backward_operator(),
                 {tensor_argument(from), tensor_argument(output), tensor_argument(counters),
                  literal_argument(static_cast<int64_t>(type))},
                 {grad, bias_grad});
    return 1;
  }

  TraceEditor editor_;
  c10::DeviceType device_;
  Counters counters_;
};

}  // namespace

int fuse_bias_relu(Trace& trace, c10::DeviceType device) {
  return BiasReluFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
