// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

// Positions of nodes that belong together; -1 for what is not there.
struct NormPooling {
  int32_t norm = -1, pool = -1;
  int32_t sum = -1, pool_backward = -1, norm_backward = -1;
  PoolWindow window = {};
};

class NormPoolFusion {
 public:
  NormPoolFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      NormPooling pooling{.pool = i};
      if (find_forward(pooling) && find_backward(pooling)) fused += fuse(pooling) ? 1 : 0;
    }
    return fused;
  }

 private:
  const Node& node(int32_t position) const { return editor_.node(position); }

  // Batch norm and relu, which pooling alone reads, both ways.
  bool find_forward(NormPooling& pooling) const {
    const auto window = pool_window(editor_, pooling.pool, device_);
    if (!window) return false;
    pooling.window = *window;
    const ValueId normalized = tensor_at(node(pooling.pool), 0);
    pooling.norm = editor_.value(normalized).producer;
    const std::vector<int32_t>& readers = editor_.readers(normalized);
    if (pooling.norm < 0 || !editor_.is_private(normalized) || readers.size() != 2 ||
        readers[0] != pooling.pool) {
      return false;
    }
    pooling.pool_backward = readers[1];
    const Node& norm = node(pooling.norm);
    constexpr size_t kResidual = 5, kRelu = 9, kBits = 3;
    return is_op(norm, "tensorpack::batch_norm_act") && norm.arguments[kRelu].literal.toBool() &&
           tensor_at(norm, kResidual) == kNoValue && result_at(norm, kBits) == kNoValue &&
           editor_.readers(result_at(node(pooling.pool), 1)) ==
               std::vector<int32_t>{pooling.pool_backward};
  }

  bool find_backward(NormPooling& pooling) const {
    const Node& pool = node(pooling.pool_backward);
    pooling.norm_backward = only_reader(editor_, result_at(pool, 0));
    if (pooling.norm_backward < 0) return false;
    const Node& norm = node(pooling.norm);
    const Node& backward = node(pooling.norm_backward);
    constexpr size_t kGrad = 0, kOther = 1, kInput = 2, kMean = 6, kMask = 9, kKeeps = 10;
    if (!is_op(backward, "tensorpack::batch_norm_act_backward") ||
        tensor_at(backward, kGrad) != result_at(pool, 0) ||
        tensor_at(backward, kOther) != kNoValue ||
        tensor_at(backward, kInput) != tensor_at(norm, 0) ||
        tensor_at(backward, kMean) != result_at(norm, 1) ||
        !is_number(backward, kMask, static_cast<double>(ReluMask::kOfInput)) ||
        !is_number(backward, kKeeps, static_cast<double>(NormKeeps::kNothing))) {
      return false;
    }
    const ValueId grad = tensor_at(pool, 0);
    const int32_t sum = editor_.value(grad).producer;
    if (sum >= 0 && only_reader(editor_, grad) == pooling.pool_backward &&
        addend(editor_, node(sum), tensor_at(node(sum), 0)) != kNoValue) {
      pooling.sum = sum;
    }
    return true;
  }

  // Both ways or none.
  bool fuse(const NormPooling& pooling) {
    const std::vector<int32_t> forward = {pooling.norm, pooling.pool};
    const TraceEditor::Interval interval = editor_.interval_of(forward);
    if (interval.earliest > interval.latest) return false;
    const ValueId pooled = result_at(node(pooling.pool), 0);
    const ValueId taken = add_value_like(editor_, pooled);
    const ValueId places = add_value_like(editor_, pooled, at::kByte);
    Node fused = forward_node(pooling, taken, places);
    if (!fuse_backward(pooling, taken, places)) return false;
    const bool is_fused = editor_.fuse(forward, std::move(fused));
    TP_ASSERT(is_fused);
    return true;
  }

  Node forward_node(const NormPooling& pooling, ValueId taken, ValueId places) const {
    const Node& norm = node(pooling.norm);
    std::vector<Argument> arguments;  // tensors, counters, momentum, epsilon
    for (size_t i : {0, 1, 2, 3, 4, 6, 7, 8}) arguments.push_back(norm.arguments[i]);
    add_window(arguments, pooling.window);
    Node fused = make_node(
        editor_.trace(), batch_norm_pool_operator(), std::move(arguments),
        {result_at(node(pooling.pool), 0), result_at(norm, 1), result_at(norm, 2), taken, places},
        norm.scope);
    fused.writes = norm.writes;
    return fused;
  }

  bool fuse_backward(NormPooling pooling, ValueId taken, ValueId places) {
    if (pooling.sum >= 0 && try_backward(pooling, taken, places)) return true;
    pooling.sum = -1;
    return try_backward(pooling, taken, places);
  }

  bool try_backward(const NormPooling& pooling, ValueId taken, ValueId places) {
    const Node& norm = node(pooling.norm);
    const Node& backward = node(pooling.norm_backward);
    std::vector<Argument> arguments;
    std::vector<int32_t> nodes;
    if (pooling.sum >= 0) {
      nodes.push_back(pooling.sum);
      for (size_t i : {0, 1}) arguments.push_back(node(pooling.sum).arguments[i]);
    } else {
      arguments.push_back(node(pooling.pool_backward).arguments[0]);
      arguments.push_back(tensor_argument(kNoValue));
    }
    nodes.insert(nodes.end(), {pooling.pool_backward, pooling.norm_backward});
    for (ValueId id : {tensor_at(norm, 0), taken, places}) arguments.push_back(tensor_argument(id));
    for (size_t i : {4, 5, 6, 7, 8}) arguments.push_back(backward.arguments[i]);
    add_window(arguments, pooling.window);
    Node fused = make_node(
        editor_.trace(), batch_norm_pool_backward_operator(), std::move(arguments),
        {result_at(backward, 0), result_at(backward, 1), result_at(backward, 2)}, backward.scope);
    return editor_.fuse(nodes, std::move(fused));
  }

  static void add_window(std::vector<Argument>& arguments, const PoolWindow& window) {
    for (const auto* numbers : {&window.kernel, &window.stride, &window.padding}) {
      arguments.push_back(literal_argument(*numbers));
    }
  }

  TraceEditor editor_;
  c10::DeviceType device_;
};

}  // namespace

int fuse_norm_pool(Trace& trace, c10::DeviceType device) {
  return NormPoolFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
