// SPDX-License-Identifier: Apache-2.0
// See Note [Gradients of filters]. A transposed convolution has the roles of its input and of the
// gradient changed: where that one has few channels, it is the image.
#include "tensorpack/cuda/kernels/filter_gradient.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

constexpr int64_t kMostImageChannels = 4;
// cuDNN's kernels for small ones take long to begin and to end. Where its tensor cores win was not
// measured: this is nine times the largest that was.
constexpr double kMostFilterOperations = 5e8;

class FilterGradients {
 public:
  FilterGradients(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int made = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (!is_replaceable(editor_.node(i))) continue;
      replace(i);
      ++made;
    }
    return made;
  }

 private:
  // Arguments of aten::convolution_backward.
  static constexpr size_t kGrad = 0, kInput = 1, kStride = 4, kPadding = 5, kDilation = 6,
                          kTransposed = 7, kGroups = 9;

  static bool is_transposed(const Node& node) {
    return node.arguments[kTransposed].literal.toBool();
  }
  ValueId image_of(const Node& node) const {
    return tensor_at(node, is_transposed(node) ? kGrad : kInput);
  }
  ValueId grad_of(const Node& node) const {
    return tensor_at(node, is_transposed(node) ? kInput : kGrad);
  }

  bool is_data(ValueId id, c10::ScalarType type) const {
    const Value& value = editor_.value(id);
    return value.options.device().type() == device_ && value.sizes.size() == 4 &&
           value.storage_bytes > 0 && elements_of(value) > 0 &&
           value.options.dtype().toScalarType() == type;
  }

  // Whether the filters give as many places as the gradient has.
  bool has_places(const Node& node) const {
    const auto& image = editor_.value(image_of(node)).sizes;
    const auto& grad = editor_.value(grad_of(node)).sizes;
    const auto& filters = editor_.value(result_at(node, 1)).sizes;
    const auto stride = height_and_width(node, kStride), padding = height_and_width(node, kPadding);
    const auto dilation = height_and_width(node, kDilation);
    if (stride.size() != 2 || padding.size() != 2 || dilation.size() != 2) return false;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t room = image[2 + i] + 2 * padding[i] - dilation[i] * (filters[2 + i] - 1) - 1;
      if (room < 0 || room / stride[i] + 1 != grad[2 + i]) return false;
    }
    return true;
  }

  bool is_replaceable(const Node& node) const {
    if (!is_op(node, "aten::convolution_backward") || result_at(node, 1) == kNoValue ||
        !node.arguments[kConvolutionOutputMask].literal.isBoolList() ||
        !node.arguments[kTransposed].literal.isBool() || !is_number(node, kGroups, 1)) {
      return false;
    }
    const ValueId grad = grad_of(node), image = image_of(node), filters = result_at(node, 1);
    const auto type = editor_.value(grad).options.dtype().toScalarType();
    if (!has_kernel_type(type) || !is_data(grad, type) || !is_data(image, type) ||
        !is_data(filters, type)) {
      return false;
    }
    const auto& size = editor_.value(filters).sizes;
    const double operations = 2.0 * static_cast<double>(elements_of(editor_.value(grad))) *
                              static_cast<double>(size[1] * size[2] * size[3]);
    return size[1] <= kMostImageChannels && editor_.value(image).sizes[1] == size[1] &&
           editor_.value(grad).sizes[1] == size[0] && fits_filter_gradient(size) &&
           operations <= kMostFilterOperations && has_places(node);
  }

  // The gradient of the input is left to the convolution's node.
  void replace(int32_t position) {
    if (is_transposed(editor_.node(position)) && result_at(editor_.node(position), 2) != kNoValue) {
      move_bias_gradient(editor_, position, position, tensor_at(editor_.node(position), kGrad));
    }
    const Node node = editor_.node(position);
    const ValueId weight = result_at(node, 1), bias = result_at(node, 2);
    const Value& filters = editor_.value(weight);
    Node ours = make_node(
        editor_.trace(), filter_gradient_operator(),
        {tensor_argument(grad_of(node)), tensor_argument(image_of(node)),
         literal_argument(filters.sizes), literal_argument(filters.strides),
         literal_argument(height_and_width(node, kStride)),
         literal_argument(height_and_width(node, kPadding)),
         literal_argument(height_and_width(node, kDilation)), literal_argument(bias != kNoValue)},
        {weight, bias}, node.scope);
    if (result_at(node, 0) == kNoValue) {
      editor_.remove(position);
    } else {
      drop_parameter_gradients(editor_, position);
    }
    editor_.insert(position, std::move(ours));
    editor_.commit();
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int fuse_filter_gradients(Trace& trace, c10::DeviceType device) {
  return FilterGradients(trace, device).run();
}

}  // namespace tensorpack::cuda
