// SPDX-License-Identifier: Apache-2.0
// Note [Biases as operators]
// libtorch's convolutions add the bias, and sum its gradient, in kernels of their own. As operators
// of the trace, the addition can go with what follows, and the sum with what makes the gradient.
#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/pointwise_rules.h"

namespace tensorpack::cuda {
namespace {

class BiasExposure {
 public:
  BiasExposure(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  void run() {
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (is_op(editor_.node(i), "aten::convolution")) expose_addition(i);
      if (is_op(editor_.node(i), "aten::convolution_backward")) expose_sum(i);
    }
  }

 private:
  bool is_image(ValueId id) const {
    const Value& value = editor_.value(id);
    return value.sizes.size() == 4 && value.storage_bytes > 0 &&
           value.options.device().type() == device_;
  }

  void expose_addition(int32_t position) {
    const ValueId bias = tensor_at(editor_.node(position), kConvolutionBias);
    const ValueId output = result_at(editor_.node(position), 0);
    if (bias == kNoValue || !is_image(output) || !editor_.is_private(output) ||
        editor_.readers(output).empty() || !is_contiguous(editor_.value(bias)) ||
        editor_.value(bias).options.dtype() != editor_.value(output).options.dtype() ||
        !as_pointwise(editor_, editor_.node(editor_.readers(output)[0]), device_)) {
      return;
    }
    Value plain = editor_.value(output);
    plain.storage = -1;
    plain.producer = position;
    const ValueId without = editor_.add_value(std::move(plain));
    const ValueId column = add_view(bias);
    const std::string scope = editor_.node(position).scope;
    drop_bias(editor_, position);
    editor_.edit(position).results[0].ids = {without};
    editor_.disown(output);
    Node view = make_node(editor_.trace(), find_operator("aten::view"),
                          {tensor_argument(bias), literal_argument(editor_.value(column).sizes)},
                          {column}, scope);
    view.is_view = true;
    editor_.insert(position + 1, std::move(view));
    editor_.insert(position + 1, make_node(editor_.trace(), find_operator("aten::add", "Tensor"),
                                           {tensor_argument(without), tensor_argument(column),
                                            literal_argument(int64_t{1})},
                                           {output}, scope));
    editor_.commit();
  }

  // [1, C, 1, 1], in the same memory.
  ValueId add_view(ValueId bias) {
    const Value& value = editor_.value(bias);
    const int64_t channels = value.sizes[0];
    return editor_.add_value({.storage = value.storage,
                              .sizes = {1, channels, 1, 1},
                              .strides = {channels, 1, 1, 1},
                              .options = value.options,
                              .storage_bytes = value.storage_bytes});
  }

  void expose_sum(int32_t position) {
    const Node& backward = editor_.node(position);
    const ValueId grad = tensor_at(backward, 0), bias_grad = result_at(backward, 2);
    const c10::IValue& mask = backward.arguments[kConvolutionOutputMask].literal;
    if (bias_grad == kNoValue || !is_image(grad) || !mask.isBoolList() ||
        !mask.toBoolList().get(2) ||
        editor_.value(bias_grad).options.dtype() != editor_.value(grad).options.dtype() ||
        !is_column_matrix(editor_.value(grad).sizes, editor_.value(grad).strides)) {
      return;
    }
    move_bias_gradient(editor_, position, position, grad);
    editor_.commit();
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

void expose_biases(Trace& trace, c10::DeviceType device) { BiasExposure(trace, device).run(); }

}  // namespace tensorpack::cuda
