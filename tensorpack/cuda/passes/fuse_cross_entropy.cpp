// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/Reduction.h>

#include <algorithm>

#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

at::ScalarType type_of(const Value& value) { return value.options.dtype().toScalarType(); }

// The nodes of one loss.
struct Loss {
  int32_t softmax = -1, forward = -1, backward = -1, softmax_backward = -1;
  std::vector<int32_t> nodes = {};  // all, with the casts that are taken in
  ValueId logits = kNoValue, grad = kNoValue;
};

class CrossEntropyFusion {
 public:
  CrossEntropyFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      Loss loss;
      if (!is_op(editor_.node(i), "aten::nll_loss_backward") || !match(i, loss)) continue;
      if (!fuse(loss)) continue;
      ++fused;
      i = -1;  // positions have changed
    }
    return fused;
  }

 private:
  bool match(int32_t backward, Loss& loss) const {
    loss.backward = backward;
    const ValueId log_probabilities = tensor_at(editor_.node(backward), 1);
    loss.softmax = editor_.value(log_probabilities).producer;
    if (loss.softmax < 0 || !editor_.is_private(log_probabilities)) return false;
    for (int32_t reader : editor_.readers(log_probabilities)) {
      const Node& node = editor_.node(reader);
      if (is_op(node, "aten::nll_loss_forward") && loss.forward < 0) {
        loss.forward = reader;
      } else if (is_op(node, "aten::_log_softmax_backward_data") && loss.softmax_backward < 0) {
        loss.softmax_backward = reader;
      } else if (reader != backward) {
        return false;
      }
    }
    return loss.forward >= 0 && loss.softmax_backward >= 0 && is_understood(loss) &&
           take_in_casts(loss);
  }

  bool is_understood(const Loss& loss) const {
    const Node& softmax = editor_.node(loss.softmax);
    const Node& forward = editor_.node(loss.forward);
    const Node& backward = editor_.node(loss.backward);
    const Node& softmax_backward = editor_.node(loss.softmax_backward);
    const Value& logits = editor_.value(tensor_at(softmax, 0));
    if (!is_op(softmax, "aten::_log_softmax") || logits.sizes.size() != 2 ||
        logits.options.device().type() != device_ || !is_contiguous(logits) ||
        !(is_number(softmax, 1, 1) || is_number(softmax, 1, -1)) ||
        softmax.arguments[2].literal.toBool() || logits.sizes[0] > (int64_t{1} << 30)) {
      return false;
    }
    // Without weights of classes, of the same targets, reduced.
    const bool is_reduced =
        is_number(forward, 3, at::Reduction::Mean) || is_number(forward, 3, at::Reduction::Sum);
    if (!is_reduced || tensor_at(forward, 2) != kNoValue || tensor_at(backward, 3) != kNoValue ||
        tensor_at(forward, 1) != tensor_at(backward, 2) ||
        tensor_at(backward, 6) != result_at(forward, 1)) {
      return false;
    }
    const Value& target = editor_.value(tensor_at(forward, 1));
    const Value& loss_grad = editor_.value(tensor_at(backward, 0));
    const ValueId grad = result_at(backward, 0);
    return target.sizes.size() == 1 && is_contiguous(target) && type_of(target) == at::kLong &&
           target.options.device() == logits.options.device() && loss_grad.sizes.empty() &&
           type_of(loss_grad) == at::kFloat && editor_.is_private(grad) &&
           editor_.readers(grad).size() == 1 && tensor_at(softmax_backward, 0) == grad;
  }

  // From what the logits were cast and to what their gradient is.
  bool take_in_casts(Loss& loss) const {
    loss.nodes = {loss.softmax, loss.forward, loss.backward, loss.softmax_backward};
    loss.logits = tensor_at(editor_.node(loss.softmax), 0);
    loss.grad = result_at(editor_.node(loss.softmax_backward), 0);
    const int32_t before = editor_.value(loss.logits).producer;
    if (before >= 0 && is_read_once(loss.logits) && is_cast(editor_.node(before))) {
      loss.logits = tensor_at(editor_.node(before), 0);
      loss.nodes.push_back(before);
    }
    if (is_read_once(loss.grad) && is_cast(editor_.node(editor_.readers(loss.grad)[0]))) {
      const int32_t after = editor_.readers(loss.grad)[0];
      loss.grad = result_at(editor_.node(after), 0);
      loss.nodes.push_back(after);
    }
    std::sort(loss.nodes.begin(), loss.nodes.end());
    const Value& logits = editor_.value(loss.logits);
    return fits_cross_entropy(type_of(logits), logits.sizes[1]);
  }

  bool is_read_once(ValueId id) const {
    return editor_.is_private(id) && editor_.readers(id).size() == 1;
  }

  // One that changes the type alone.
  bool is_cast(const Node& node) const {
    if (!is_op(node, "aten::_to_copy")) return false;
    const Value& from = editor_.value(tensor_at(node, 0));
    const Value& to = editor_.value(result_at(node, 0));
    return from.sizes == to.sizes && is_contiguous(from) && is_contiguous(to) &&
           from.options.device() == to.options.device() && fits_cross_entropy(type_of(from), 1) &&
           fits_cross_entropy(type_of(to), 1);
  }

  bool fuse(const Loss& loss) {
    const Node& forward = editor_.node(loss.forward);
    std::vector<Argument> arguments;
    for (ValueId id :
         {loss.logits, tensor_at(forward, 1), tensor_at(editor_.node(loss.backward), 0)}) {
      arguments.push_back(tensor_argument(id));
    }
    arguments.push_back(literal_argument(is_number(forward, 3, at::Reduction::Mean)));
    arguments.push_back(forward.arguments[4]);
    arguments.push_back(literal_argument(static_cast<int64_t>(type_of(editor_.value(loss.grad)))));
    return editor_.fuse(
        loss.nodes,
        make_node(editor_.trace(), cross_entropy_operator(), std::move(arguments),
                  {result_at(forward, 0), result_at(forward, 1), loss.grad}, forward.scope));
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int fuse_cross_entropy(Trace& trace, c10::DeviceType device) {
  return CrossEntropyFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
