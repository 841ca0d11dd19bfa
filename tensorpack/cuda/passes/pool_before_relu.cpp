// SPDX-License-Identifier: Apache-2.0
// Note [Pooling first]
// The largest of some numbers stays the largest when a bias is added to all of them and relu is
// applied, so the bias of a convolution and its relu may as well follow the pooling: there are four
// times fewer numbers then, both ways. Rounding keeps the order, too, so that the results are the
// same bits. Where two numbers differ, but not after the bias was added, the gradient goes to
// another of the two.
#include <algorithm>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// Positions of nodes that belong together; -1 for what is not there.
struct Pooling {
  int32_t convolution = -1, relu = -1, pool = -1;
  int32_t pool_backward = -1, relu_backward = -1, convolution_backward = -1;

  bool has_backward() const { return pool_backward >= 0; }
};

class PoolingFirst {
 public:
  PoolingFirst(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int moved = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (!is_op(editor_.node(i), "aten::relu")) continue;
      Pooling pooling{.relu = i};
      if (!find_forward(pooling) || !find_backward(pooling)) continue;
      move(pooling);
      ++moved;
    }
    return moved;
  }

 private:
  ValueId made_by(int32_t position) const { return result_at(editor_.node(position), 0); }

  bool is_matrix(ValueId id) const { return is_column_image(editor_.value(id), device_); }

  bool find_forward(Pooling& pooling) const {
    const ValueId sum = tensor_at(editor_.node(pooling.relu), 0), output = made_by(pooling.relu);
    pooling.convolution = editor_.value(sum).producer;
    if (pooling.convolution < 0 || !editor_.is_private(output) ||
        only_reader(editor_, sum) != pooling.relu ||
        !is_op(editor_.node(pooling.convolution), "aten::convolution") ||
        !is_same_geometry(editor_.value(sum), editor_.value(output)) || !is_matrix(output)) {
      return false;
    }
    const ValueId bias = tensor_at(editor_.node(pooling.convolution), kConvolutionBias);
    if (bias == kNoValue || !is_contiguous(editor_.value(bias)) ||
        !has_kernel_type(editor_.value(bias).options.dtype().toScalarType())) {
      return false;
    }
    for (int32_t reader : editor_.readers(output)) {
      const Node& node = editor_.node(reader);
      int32_t* place = is_op(node, "aten::max_pool2d_with_indices") ? &pooling.pool
                       : is_op(node, "aten::max_pool2d_with_indices_backward")
                           ? &pooling.pool_backward
                       : is_op(node, "aten::threshold_backward") ? &pooling.relu_backward
                                                                 : nullptr;
      if (place == nullptr || *place >= 0) return false;
      *place = reader;
    }
    if (pooling.pool < 0) return false;
    const ValueId pooled = made_by(pooling.pool);
    return is_matrix(pooled) && editor_.writers(editor_.value(pooled).storage).empty() &&
           !is_written_between(editor_, bias, pooling.convolution, pooling.pool);
  }

  // True if there is none.
  bool find_backward(Pooling& pooling) const {
    if (pooling.pool_backward < 0 && pooling.relu_backward < 0) return true;
    if (pooling.pool_backward < 0 || pooling.relu_backward < 0) return false;
    const Node& relu = editor_.node(pooling.relu_backward);
    const Node& pool = editor_.node(pooling.pool_backward);
    const ValueId from = tensor_at(pool, 0), gradient = made_by(pooling.relu_backward);
    if (tensor_at(pool, 1) != made_by(pooling.relu) ||
        tensor_at(pool, 7) != result_at(editor_.node(pooling.pool), 1) ||
        tensor_at(relu, 0) != made_by(pooling.pool_backward) || !is_number(relu, 2, 0) ||
        only_reader(editor_, made_by(pooling.pool_backward)) != pooling.relu_backward ||
        !is_same_geometry(editor_.value(from), editor_.value(made_by(pooling.pool))) ||
        !is_same_geometry(editor_.value(gradient), editor_.value(made_by(pooling.relu))) ||
        !is_same_geometry(editor_.value(gradient), editor_.value(made_by(pooling.pool_backward)))) {
      return false;
    }
    for (int32_t reader : editor_.readers(gradient)) {
      const Node& node = editor_.node(reader);
      if (is_op(node, "aten::convolution_backward") && result_at(node, 2) != kNoValue) {
        pooling.convolution_backward = reader;
      }
    }
    if (pooling.convolution_backward < 0) return true;
    const Node& convolution = editor_.node(pooling.convolution_backward);
    return convolution.arguments[kConvolutionOutputMask].literal.isBoolList() &&
           editor_.value(result_at(convolution, 2)).options.dtype() ==
               editor_.value(gradient).options.dtype();
  }

  void move(const Pooling& pooling) {
    move_forward(pooling);
    if (pooling.has_backward()) move_backward(pooling);
    editor_.remove(pooling.relu);
    editor_.commit();
  }

  // The convolution without bias, pooling, and both on what is left.
  void move_forward(const Pooling& pooling) {
    const ValueId bias = tensor_at(editor_.node(pooling.convolution), kConvolutionBias);
    drop_bias(editor_, pooling.convolution);
    const ValueId sum = tensor_at(editor_.node(pooling.relu), 0), pooled = made_by(pooling.pool);
    const ValueId largest = add_value_like(editor_, pooled);
    Node pool = editor_.node(pooling.pool);
    replace(pool, made_by(pooling.relu), sum);
    pool.results[0].ids = {largest};
    const std::string scope = editor_.node(pooling.relu).scope;
    editor_.remove(pooling.pool);
    editor_.insert(pooling.pool, std::move(pool));
    editor_.insert(pooling.pool,
                   make_node(editor_.trace(), bias_relu_operator(),
                             {tensor_argument(largest), tensor_argument(bias)}, {pooled}, scope));
  }

  // The mask and the sum for the bias on what was pooled, then the gradient of pooling.
  void move_backward(const Pooling& pooling) {
    const Node relu = editor_.node(pooling.relu_backward);
    const ValueId sum = tensor_at(editor_.node(pooling.relu), 0), pooled = made_by(pooling.pool);
    const ValueId masked = add_value_like(editor_, pooled);
    Node pool = editor_.node(pooling.pool_backward);
    const ValueId from = tensor_at(pool, 0);
    replace(pool, from, masked);
    replace(pool, made_by(pooling.relu), sum);
    pool.results[0].ids = {made_by(pooling.relu_backward)};

    editor_.remove(pooling.pool_backward);
    editor_.remove(pooling.relu_backward);
    const int32_t here = pooling.pool_backward;
    editor_.insert(here,
                   make_node(editor_.trace(), relu.op,
                             {tensor_argument(from), tensor_argument(pooled), relu.arguments[2]},
                             {masked}, relu.scope));
    if (pooling.convolution_backward >= 0) {
      move_bias_gradient(editor_, pooling.convolution_backward, here, masked);
    }
    editor_.insert(here, std::move(pool));
  }

  // Has the node read `to` in place of `from`.
  void replace(Node& node, ValueId from, ValueId to) const {
    for (Argument& argument : node.arguments) {
      std::replace(argument.ids.begin(), argument.ids.end(), from, to);
    }
    std::replace(node.reads.begin(), node.reads.end(), editor_.value(from).storage,
                 editor_.value(to).storage);
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int pool_before_relu(Trace& trace, c10::DeviceType device) {
  return PoolingFirst(trace, device).run();
}

}  // namespace tensorpack::cuda
