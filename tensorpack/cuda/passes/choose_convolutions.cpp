// SPDX-License-Identifier: Apache-2.0
// See Note [Choosing convolutions].
#include "tensorpack/cuda/kernels/convolution.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

class ConvolutionChoice {
 public:
  ConvolutionChoice(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int made = 0;
    int64_t issued = 0, awaited = 0;  // see Note [A side stream]
    for (int32_t i = 0; i < editor_.size(); ++i) {
      const Node& node = editor_.node(i);
      if (is_op(node, "aten::convolution")) {
        made += replace_forward(i);
      } else if (is_op(node, "aten::convolution_backward")) {
        made += replace_backward(i, issued > awaited);
      } else if (is_op(node, "tensorpack::end_side_stream")) {
        issued = number_of_section(node);
      } else if (is_op(node, "tensorpack::join_side_stream")) {
        awaited = number_of_section(node);
      }
    }
    return made;
  }

 private:
  static int64_t number_of_section(const Node& node) { return node.arguments[1].literal.toInt(); }

  std::optional<ConvolutionGeometry> geometry_of(const Node& node, size_t first, ValueId input,
                                                 ValueId weight,
                                                 const std::vector<ValueId>& results) const {
    const c10::IValue& transposed = node.arguments.at(first + 3).literal;
    const c10::IValue& groups = node.arguments.at(first + 5).literal;
    const Value& from = editor_.value(input);
    const auto type = from.options.dtype().toScalarType();
    if (!transposed.isBool() || !groups.isInt() || from.options.device().type() != device_ ||
        editor_.value(weight).options.dtype() != from.options.dtype() ||
        !has_chosen_convolution(type, from.sizes.size(), groups.toInt())) {
      return std::nullopt;
    }
    ConvolutionGeometry geometry{.stride = height_and_width(node, first),
                                 .padding = height_and_width(node, first + 1),
                                 .dilation = height_and_width(node, first + 2),
                                 .transposed = transposed.toBool(),
                                 .output_padding = height_and_width(node, first + 4)};
    for (const auto* given :
         {&geometry.stride, &geometry.padding, &geometry.dilation, &geometry.output_padding}) {
      if (given->size() != 2) return std::nullopt;
    }
    for (const bool channels_last : {true, false}) {
      geometry.channels_last = channels_last;
      if (all_lie_so(results, channels_last)) return geometry;
    }
    return std::nullopt;
  }

  bool all_lie_so(const std::vector<ValueId>& results, bool channels_last) const {
    return std::all_of(results.begin(), results.end(), [&](ValueId id) {
      return id == kNoValue ||
             editor_.value(id).strides == strides_of(editor_.value(id).sizes, channels_last);
    });
  }

  static std::vector<Argument> with(std::vector<Argument> arguments,
                                    const ConvolutionGeometry& geometry) {
    for (const auto* given : {&geometry.stride, &geometry.padding, &geometry.dilation}) {
      arguments.push_back(literal_argument(*given));
    }
    arguments.push_back(literal_argument(geometry.transposed));
    arguments.push_back(literal_argument(geometry.output_padding));
    return arguments;
  }

  int replace_forward(int32_t position) {
    const Node& node = editor_.node(position);
    const ValueId input = tensor_at(node, 0), weight = tensor_at(node, 1);
    const auto geometry =
        geometry_of(node, kConvolutionGeometry, input, weight, {result_at(node, 0)});
    if (!geometry) return 0;
    std::vector<Argument> arguments =
        with({node.arguments[0], node.arguments[1], node.arguments[kConvolutionBias]}, *geometry);
    arguments.push_back(literal_argument(geometry->channels_last));
    replace_node(editor_, position, convolution_operator(), std::move(arguments),
                 {result_at(node, 0)});
    return 1;
  }

  int replace_backward(int32_t position, bool beside) {
    const Node& node = editor_.node(position);
    const ValueId input = tensor_at(node, 1), weight = tensor_at(node, 2);
    const Argument mask = node.arguments[kConvolutionOutputMask];
    const std::vector<ValueId> results = {result_at(node, 0), result_at(node, 1),
                                          result_at(node, 2)};
    const auto geometry =
        geometry_of(node, kConvolutionBackwardGeometry, input, weight, {results[0], results[1]});
    if (!geometry || !mask.literal.isBoolList()) return 0;
    std::vector<Argument> arguments =
        with({node.arguments[0], node.arguments[1], node.arguments[2]}, *geometry);
    arguments.push_back(mask);
    arguments.push_back(literal_argument(geometry->channels_last));
    arguments.push_back(literal_argument(beside));
    replace_node(editor_, position, convolution_backward_operator(), std::move(arguments), results);
    return 1;
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int choose_convolutions(Trace& trace, c10::DeviceType device) {
  return ConvolutionChoice(trace, device).run();
}

}  // namespace tensorpack::cuda
