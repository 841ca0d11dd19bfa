// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "tensorpack/cpu/kernels/operators.h"
#include "tensorpack/cpu/passes/passes.h"
#include "tensorpack/graph/patterns.h"
#include "tensorpack/graph/trace_editor.h"
#include "tensorpack/utils/processor.h"

namespace tensorpack::cpu {
namespace {

bool is_image(const Value& value) {
  return value.options.device().is_cpu() && value.options.dtype() == at::kFloat &&
         value.sizes.size() == 4 && is_contiguous(value);
}

// True for numbers of height and width that are all `value`.
bool are_all(const Node& node, size_t argument, int64_t value) {
  const c10::IValue& literal = node.arguments.at(argument).literal;
  if (!literal.isIntList()) return false;
  const std::vector<int64_t> given = literal.toIntVector();
  return std::all_of(given.begin(), given.end(), [=](int64_t one) { return one == value; });
}

// The window's arguments begin at `first`; without a stride it is the kernel's size.
bool is_of_squares(const Node& node, size_t first) {
  const c10::IValue& ceil = node.arguments.at(first + 4).literal;
  return are_all(node, first, 2) && are_all(node, first + 1, 2) && are_all(node, first + 2, 0) &&
         are_all(node, first + 3, 1) && ceil.isBool() && !ceil.toBool();
}

class MaxPoolFusion {
 public:
  explicit MaxPoolFusion(Trace& trace) : editor_(trace) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (is_forward(editor_.node(i))) fused += fuse(i);
    }
    return fused;
  }

 private:
  // What became of one gradient of a pooling: the nodes and what they make.
  struct Backward {
    std::vector<int32_t> nodes = {};
    ValueId grad = kNoValue;
    ValueId result = kNoValue;
  };

  bool is_forward(const Node& node) const {
    if (!is_op(node, "aten::max_pool2d_with_indices") || !is_of_squares(node, 1)) return false;
    const ValueId input = tensor_at(node, 0), indices = result_at(node, 1);
    if (!is_image(editor_.value(input)) || !is_image(editor_.value(result_at(node, 0)))) {
      return false;
    }
    if (indices == kNoValue || !editor_.is_private(indices)) return false;
    const std::vector<int32_t>& readers = editor_.readers(indices);
    return std::all_of(readers.begin(), readers.end(), [&](int32_t reader) {
      return is_backward(editor_.node(reader), input, indices);
    });
  }

  bool is_backward(const Node& node, ValueId input, ValueId indices) const {
    return is_op(node, "aten::max_pool2d_with_indices_backward") && tensor_at(node, 1) == input &&
           tensor_at(node, 7) == indices && is_of_squares(node, 2) &&
           is_image(editor_.value(result_at(node, 0)));
  }

  int fuse(int32_t position) {
    const ValueId input = tensor_at(editor_.node(position), 0);
    std::vector<Backward> backward;
    for (int32_t reader : editor_.readers(result_at(editor_.node(position), 1))) {
      const Node& node = editor_.node(reader);
      backward.push_back({{reader}, tensor_at(node, 0), result_at(node, 0)});
    }
    std::vector<Backward> with_relu = backward;
    const int32_t relu = editor_.value(input).producer;
    if (is_relu_of(relu, position, with_relu)) {
      replace({relu, position}, tensor_at(editor_.node(relu), 0), true, with_relu);
    } else {
      replace({position}, input, false, backward);
    }
    return 1 + static_cast<int>(backward.size());
  }

  // True if the node is a relu that nothing needs but the pooling at `position`, its gradients and
  // their way back through the relu, which are added to `backward`.
  bool is_relu_of(int32_t relu, int32_t position, std::vector<Backward>& backward) const {
    if (relu < 0 || !is_op(editor_.node(relu), "aten::relu")) return false;
    const ValueId output = result_at(editor_.node(relu), 0);
    if (!editor_.is_private(output) || !is_image(editor_.value(tensor_at(editor_.node(relu), 0)))) {
      return false;
    }
    std::vector<int32_t> known = {position};
    for (Backward& way : backward) {
      const std::vector<int32_t>& readers = editor_.readers(way.result);
      if (!editor_.is_private(way.result) || readers.size() != 1) return false;
      const Node& next = editor_.node(readers[0]);
      if (!is_op(next, "aten::threshold_backward") || tensor_at(next, 1) != output ||
          !is_number(next, 2, 0) || !is_image(editor_.value(result_at(next, 0)))) {
        return false;
      }
      known.push_back(way.nodes[0]);
      way.nodes.push_back(readers[0]);
      way.result = result_at(next, 0);
      known.push_back(readers[0]);
    }
    const std::vector<int32_t>& readers = editor_.readers(output);
    return has_place({relu, position}) &&
           std::all_of(readers.begin(), readers.end(),
                       [&](int32_t reader) {
                         return std::find(known.begin(), known.end(), reader) != known.end();
                       }) &&
           std::all_of(backward.begin(), backward.end(),
                       [&](const Backward& way) { return has_place(way.nodes); });
  }

  bool has_place(const std::vector<int32_t>& nodes) const {
    const TraceEditor::Interval interval = editor_.interval_of(nodes);
    return interval.earliest <= interval.latest;
  }

  void replace(const std::vector<int32_t>& nodes, ValueId input, bool relu,
               const std::vector<Backward>& backward) {
    const Node forward = editor_.node(nodes.back());
    const ValueId output = result_at(forward, 0);
    const ValueId places = add_value_like(editor_, output, at::kByte);

    put(nodes, make_node(editor_.trace(), pool_squares_operator(),
                         {tensor_argument(input), literal_argument(relu)}, {output, places},
                         forward.scope));
    for (const Backward& way : backward) {
      put(way.nodes, make_node(editor_.trace(), pool_squares_backward_operator(),
                               {tensor_argument(way.grad), tensor_argument(places),
                                literal_argument(editor_.value(input).sizes)},
                               {way.result}, editor_.node(way.nodes[0]).scope));
    }
    editor_.commit();
  }

  // In the place of `nodes`, as near to the last of them as can be.
  void put(const std::vector<int32_t>& nodes, Node node) {
    const TraceEditor::Interval interval = editor_.interval_of(nodes);
    for (int32_t position : nodes) editor_.remove(position);
    editor_.insert(std::clamp(nodes.back(), interval.earliest, interval.latest), std::move(node));
  }

  TraceEditor editor_;
};

}  // namespace

int fuse_max_pool(Trace& trace) { return has_avx2() ? MaxPoolFusion(trace).run() : 0; }

}  // namespace tensorpack::cpu
