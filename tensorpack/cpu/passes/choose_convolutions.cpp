// SPDX-License-Identifier: Apache-2.0
// Note [Choosing convolutions]
// oneDNN sums products, and fills vectors with channels. Two kinds of convolutions take less time
// in another way: those with 3x3 filters over many channels, with fewer products (see Note
// [Winograd]), and gradients of weights over images of one channel, with vectors of pixels. Which
// one is taken is told by its sizes alone, so that a program rounds alike in every run.
#include <optional>

#include "tensorpack/cpu/kernels/operators.h"
#include "tensorpack/cpu/kernels/weight_gradient.h"
#include "tensorpack/cpu/kernels/winograd.h"
#include "tensorpack/cpu/passes/passes.h"
#include "tensorpack/graph/patterns.h"
#include "tensorpack/graph/trace_editor.h"
#include "tensorpack/utils/processor.h"

namespace tensorpack::cpu {
namespace {

bool is_float_image(const Value& value) {
  return value.options.device().is_cpu() && value.options.dtype() == at::kFloat &&
         value.sizes.size() == 4 && value.storage_bytes > 0;
}

bool is_channels_last(const Value& value) {
  const std::vector<int64_t>& size = value.sizes;
  const std::vector<int64_t> strides = {size[1] * size[2] * size[3], 1, size[1] * size[3], size[1]};
  for (size_t i = 0; i < strides.size(); ++i) {
    if (size[i] != 1 && value.strides[i] != strides[i]) return false;
  }
  return true;
}

// Numbers of height and width, where one may stand for both.
std::optional<Padding> pair_at(const Node& node, size_t argument) {
  const c10::IValue& literal = node.arguments.at(argument).literal;
  if (!literal.isIntList()) return std::nullopt;
  const std::vector<int64_t> given = literal.toIntVector();
  if (given.size() == 1) return Padding{given[0], given[0]};
  return given.size() == 2 ? std::optional(Padding{given[0], given[1]}) : std::nullopt;
}

// The padding of a convolution without stride, dilation or groups, whose stride is at `first`.
std::optional<Padding> padding_of(const Node& node, size_t first) {
  const Padding ones = {1, 1};
  const c10::IValue& transposed = node.arguments.at(first + 3).literal;
  if (pair_at(node, first) != ones || pair_at(node, first + 2) != ones || !transposed.isBool() ||
      transposed.toBool() || !is_number(node, first + 5, 1)) {
    return std::nullopt;
  }
  return pair_at(node, first + 1);
}

Argument numbers(const Padding& padding) {
  return literal_argument(std::vector<int64_t>(padding.begin(), padding.end()));
}

class Choice {
 public:
  explicit Choice(Trace& trace) : editor_(trace) {}

  int run() {
    int chosen = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (is_op(editor_.node(i), "aten::convolution")) chosen += choose_forward(i);
      if (is_op(editor_.node(i), "aten::convolution_backward")) chosen += choose_backward(i);
    }
    return chosen;
  }

 private:
  bool is_winograd(ValueId input, ValueId weight, const Padding& padding) const {
    const Value &x = editor_.value(input), &w = editor_.value(weight);
    return is_float_image(x) && is_float_image(w) && is_channels_last(x) && is_channels_last(w) &&
           fits_winograd(x.sizes, w.sizes, padding);
  }

  // A result that a kernel makes in channels_last is one that was so.
  bool is_made_alike(ValueId id) const {
    return id == kNoValue ||
           (is_float_image(editor_.value(id)) && is_channels_last(editor_.value(id)));
  }

  int choose_forward(int32_t position) {
    const Node& node = editor_.node(position);
    const ValueId input = tensor_at(node, 0), weight = tensor_at(node, 1);
    const std::optional<Padding> padding = padding_of(node, 3);
    if (!padding || !is_winograd(input, weight, *padding) || !is_made_alike(result_at(node, 0))) {
      return 0;
    }
    replace_node(editor_, position, winograd_operator(),
                 {tensor_argument(input), tensor_argument(weight),
                  tensor_argument(tensor_at(node, 2)), numbers(*padding)},
                 {result_at(node, 0)});
    return 1;
  }

  int choose_backward(int32_t position) {
    const Node& node = editor_.node(position);
    const ValueId grad = tensor_at(node, 0), input = tensor_at(node, 1),
                  weight = tensor_at(node, 2);
    const std::optional<Padding> padding = padding_of(node, 4);
    const c10::IValue& mask = node.arguments[kConvolutionOutputMask].literal;
    if (!padding || !mask.isBoolList() || !is_float_image(editor_.value(grad))) return 0;
    const std::vector<ValueId> results = {result_at(node, 0), result_at(node, 1),
                                          result_at(node, 2)};
    if (is_winograd(input, weight, *padding) && is_made_alike(results[0]) &&
        is_made_alike(results[1])) {
      replace_node(editor_, position, winograd_backward_operator(),
                   {tensor_argument(grad), tensor_argument(input), tensor_argument(weight),
                    numbers(*padding), literal_argument(mask)},
                   results);
      return 1;
    }
    const Value &x = editor_.value(input), &w = editor_.value(weight);
    if (!mask.toBoolList().get(0) && mask.toBoolList().get(1) && is_float_image(x) &&
        is_float_image(w) && fits_weight_gradient(editor_.value(grad).sizes, w.sizes)) {
      replace_node(editor_, position, weight_gradient_operator(),
                   {tensor_argument(grad), tensor_argument(input), tensor_argument(weight),
                    numbers(*padding)},
                   {results[1], results[2]});
      return 1;
    }
    return 0;
  }

  TraceEditor editor_;
};

}  // namespace

int choose_convolutions(Trace& trace) { return has_avx2() ? Choice(trace).run() : 0; }

}  // namespace tensorpack::cpu
