// SPDX-License-Identifier: Apache-2.0
// See Note [Gradients of words].
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// Smaller ones take no longer than their launches, whoever computes them.
constexpr int64_t kFewestElements = 1 << 16;

class EmbeddingGradientFusion {
 public:
  EmbeddingGradientFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (!is_gradient(editor_.node(i)) || !fuse(i)) continue;
      ++fused;
      --i;  // another one may stand here now
    }
    return fused;
  }

 private:
  bool is_data(ValueId id) const { return is_dense_data(editor_.value(id), device_); }
  bool is_float(ValueId id) const {
    return is_data(id) && editor_.value(id).options.dtype() == at::kFloat;
  }

  // Of many words, of which few are there: else there is little that need not be read.
  bool is_gradient(const Node& node) const {
    if (!is_op(node, "aten::embedding_dense_backward")) return false;
    const Value& words = editor_.value(tensor_at(node, 1));
    const Value& result = editor_.value(result_at(node, 0));
    return is_float(tensor_at(node, 0)) && is_float(result_at(node, 0)) && is_contiguous(words) &&
           words.options.device().type() == device_ &&
           (words.options.dtype() == at::kLong || words.options.dtype() == at::kInt) &&
           node.arguments[3].literal.isInt() && node.arguments[4].literal.isBool() &&
           !node.arguments[4].literal.toBool() &&
           fits_embedding_gradient(result.sizes[0], result.sizes[1]) &&
           elements_of(result) >= kFewestElements && elements_of(words) <= result.sizes[0];
  }

  bool is_read_once(ValueId id) const {
    return editor_.is_private(id) && editor_.readers(id).size() == 1;
  }

  bool fuse(int32_t position) {
    const Node gradient = editor_.node(position);
    const ValueId of_words = result_at(gradient, 0);
    if (!is_read_once(of_words)) return false;
    const int32_t sum = editor_.readers(of_words)[0];
    const Node addition = editor_.node(sum);
    if (!is_op(addition, "aten::add.Tensor") || !is_number(addition, 2, 1)) return false;
    const ValueId a = tensor_at(addition, 0), b = tensor_at(addition, 1);
    const ValueId other = a == of_words ? b : a;
    const ValueId result = result_at(addition, 0);
    if (a == b || other == kNoValue || !is_data(other) ||
        editor_.value(other).sizes != editor_.value(of_words).sizes ||
        !is_same_geometry(editor_.value(result), editor_.value(of_words))) {
      return false;
    }
    const int32_t cast = cast_of(other);
    if (cast >= 0 && fuse_as({cast, position, sum}, gradient, tensor_at(editor_.node(cast), 0))) {
      return true;
    }
    return fuse_as({position, sum}, gradient, other);
  }

  // The node that casts the value, if for nobody else.
  int32_t cast_of(ValueId id) const {
    const int32_t producer = editor_.value(id).producer;
    if (producer < 0 || !is_read_once(id)) return -1;
    const Node& node = editor_.node(producer);
    const bool is_cast = is_op(node, "aten::_to_copy") && is_data(tensor_at(node, 0)) &&
                         editor_.value(tensor_at(node, 0)).sizes == editor_.value(id).sizes;
    return is_cast ? producer : -1;
  }

  bool fuse_as(const std::vector<int32_t>& nodes, const Node& gradient, ValueId other) {
    const ValueId result = result_at(editor_.node(nodes.back()), 0);
    return editor_.fuse(nodes, make_node(editor_.trace(), embedding_gradient_operator(),
                                         {gradient.arguments[0], gradient.arguments[1],
                                          tensor_argument(other), gradient.arguments[3]},
                                         {result}, gradient.scope));
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int fuse_embedding_gradient(Trace& trace, c10::DeviceType device) {
  return EmbeddingGradientFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
