// SPDX-License-Identifier: Apache-2.0
// See Note [Folded images].
#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/fold_image.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

constexpr int64_t kMostChannels = 4;

class ImageFolding {
 public:
  ImageFolding(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int made = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (is_foldable(editor_.node(i))) made += fold(i);
    }
    return made;
  }

 private:
  bool has_stride_of_two(const Node& node, size_t first) const {
    return height_and_width(node, first) == std::vector<int64_t>{2, 2} &&
           height_and_width(node, first + 1).size() == 2 &&
           height_and_width(node, first + 2) == std::vector<int64_t>{1, 1} &&
           node.arguments.at(first + 3).literal.isBool() &&
           !node.arguments.at(first + 3).literal.toBool() && is_number(node, first + 5, 1);
  }

  bool is_foldable(const Node& node) const {
    if (!is_op(node, "aten::convolution") || tensor_at(node, kConvolutionBias) != kNoValue ||
        !has_stride_of_two(node, kConvolutionGeometry)) {
      return false;
    }
    const Value& image = editor_.value(tensor_at(node, 0));
    const Value& weight = editor_.value(tensor_at(node, 1));
    return is_column_image(image, device_) && image.sizes[1] <= kMostChannels &&
           is_column_image(editor_.value(result_at(node, 0)), device_) &&
           weight.options.dtype() == image.options.dtype() && weight.sizes[2] > 2 &&
           weight.sizes[3] > 2;
  }

  // The gradient of the weights, and no other.
  bool is_weight_gradient(const Node& node, ValueId image, ValueId weight) const {
    if (!is_op(node, "aten::convolution_backward") || tensor_at(node, 1) != image ||
        tensor_at(node, 2) != weight || !has_stride_of_two(node, kConvolutionBackwardGeometry)) {
      return false;
    }
    const c10::IValue& mask = node.arguments.at(kConvolutionOutputMask).literal;
    if (!mask.isBoolList()) return false;
    const c10::List<bool> wanted = mask.toBoolList();
    return !wanted.get(0) && wanted.get(1) && !wanted.get(2) &&
           is_same_geometry(editor_.value(result_at(node, 1)), editor_.value(weight));
  }

  int fold(int32_t position) {
    const Node forward = editor_.node(position);
    const ValueId image = tensor_at(forward, 0), weight = tensor_at(forward, 1);
    const ValueId output = result_at(forward, 0);
    const Value& from = editor_.value(image);
    const ImageFold fold = ImageFold::of(
        editor_.value(weight).sizes, height_and_width(forward, kConvolutionGeometry + 1),
        editor_.value(output).sizes, from.options.dtype().toScalarType());
    const int64_t c = fold.channels, h = fold.size[0], w = fold.size[1];
    const ValueId folded =
        editor_.add_value({.sizes = {from.sizes[0], c, h, w},
                           .strides = {c * h * w, 1, c * w, c},
                           .options = from.options,
                           .storage_bytes = from.sizes[0] * c * h * w *
                                            static_cast<int64_t>(from.options.dtype().itemsize())});
    std::vector<int32_t> backward;
    for (int32_t reader : editor_.readers(image)) {
      if (is_weight_gradient(editor_.node(reader), image, weight)) backward.push_back(reader);
    }
    editor_.remove(position);
    editor_.insert(position,
                   make_node(editor_.trace(), fold_image_operator(),
                             {tensor_argument(image), literal_argument(fold.padding),
                              literal_argument(fold.size), literal_argument(fold.channels)},
                             {folded}, forward.scope));
    editor_.insert(position, make_node(editor_.trace(), folded_convolution_operator(),
                                       {tensor_argument(folded), tensor_argument(weight)}, {output},
                                       forward.scope));
    for (int32_t reader : backward) {
      const Node& node = editor_.node(reader);
      editor_.remove(reader);
      editor_.insert(reader, make_node(editor_.trace(), folded_weight_gradient_operator(),
                                       {tensor_argument(tensor_at(node, 0)),
                                        tensor_argument(folded), tensor_argument(weight)},
                                       {result_at(node, 1)}, node.scope));
    }
    editor_.commit();
    return 2 + static_cast<int>(backward.size());
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int fold_images(Trace& trace, c10::DeviceType device) { return ImageFolding(trace, device).run(); }

}  // namespace tensorpack::cuda
