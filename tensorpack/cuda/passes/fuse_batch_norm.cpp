// SPDX-License-Identifier: Apache-2.0
// Note [Fusing batch norm]
// Forward, batch norm takes in the addition of a residual and the relu that follow it. Backward, it
// takes in the gradient of that relu and the sum of gradients that comes before. The relu's mask is
// found again from the input where nothing was added. Else it is kept as bits, or, where those do
// not come in whole bytes, found from the output, which is kept anyway for the next layer.
//
// A residual that is another batch norm's result, as in the first block of a stage of a residual
// network, is never written: that one finds statistics alone, and the pass that makes the sum
// normalises both. Their backward passes need neither result.
#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kNative = "aten::native_batch_norm";
constexpr const char* kCudnn = "aten::cudnn_batch_norm";
constexpr const char* kNativeBackward = "aten::native_batch_norm_backward";
constexpr const char* kCudnnBackward = "aten::cudnn_batch_norm_backward";

bool is_float_vector(const TraceEditor& editor, ValueId id) {
  return id == kNoValue || (editor.value(id).options.dtype() == at::kFloat &&
                            editor.value(id).sizes.size() == 1 && editor.value(id).strides[0] == 1);
}

bool is_matrix(const TraceEditor& editor, ValueId id, c10::DeviceType device) {
  const Value& value = editor.value(id);
  return value.options.device().type() == device &&
         has_kernel_type(value.options.dtype().toScalarType()) && value.storage_bytes > 0 &&
         is_column_matrix(value.sizes, value.strides) &&
         value.sizes[1] <= kCounters * 32;  // blocks side by side, at one column a thread
}

class BatchNormFusion {
 public:
  BatchNormFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    const auto find = [&](auto is_one) {
      for (int32_t i = 0; i < editor_.size(); ++i) {
        if (is_one(editor_.node(i))) return i;
      }
      return int32_t{-1};
    };
    const auto is_one_forward = [&](const Node& node) { return is_forward(node); };
    const auto is_one_backward = [&](const Node& node) { return is_backward(node); };
    // Each round leaves one less: alone, a node can always be replaced.
    for (int32_t i = find(is_one_forward); i >= 0; i = find(is_one_forward)) fuse_forward(i);
    for (int32_t i = find(is_one_backward); i >= 0; i = find(is_one_backward)) fuse_backward(i);
    for (int32_t i = 0; i < editor_.size(); ++i) take_in_norm_of_residual(i);
    return fused_;
  }

 private:
  // Arguments of batch_norm_act, of which the last stands for four: weight, bias, mean and invstd.
  static constexpr size_t kResidual = 5, kRelu = 9, kKeepBits = 10, kOfResidual = 11;
  static constexpr size_t kBits = 3;  // a result

  static bool is_fused(const Node& node) { return is_op(node, "tensorpack::batch_norm_act"); }

  // ---- forward

  bool is_forward(const Node& node) const {
    const bool is_cudnn = is_op(node, kCudnn);
    if (!is_cudnn && !is_op(node, kNative)) return false;
    const c10::IValue& training = node.arguments[5].literal;
    const ValueId input = tensor_at(node, 0);
    if (!training.isBool() || !training.toBool() || !is_matrix(editor_, input, device_) ||
        !is_same_geometry(editor_.value(input), editor_.value(result_at(node, 0)))) {
      return false;
    }
    for (size_t i = 1; i <= 4; ++i) {
      if (!is_float_vector(editor_, tensor_at(node, i))) return false;
    }
    if ((tensor_at(node, 3) == kNoValue) != (tensor_at(node, 4) == kNoValue)) return false;
    return !is_cudnn || is_reserve_unneeded(result_at(node, 3));
  }

  // cuDNN's own backward pass needs it, or a copy where the forward pass has several of them.
  bool is_reserve_unneeded(ValueId reserve) const {
    if (reserve == kNoValue) return true;
    for (int32_t reader : editor_.readers(reserve)) {
      const Node& node = editor_.node(reader);
      if (is_op(node, "aten::clone") ? !is_reserve_unneeded(result_at(node, 0))
                                     : !is_backward(node)) {
        return false;
      }
    }
    return !editor_.is_output(reserve);
  }

  void fuse_forward(int32_t position) {
    const ValueId normalized = result_at(editor_.node(position), 0);
    const int32_t next = only_reader(editor_, normalized);
    if (next >= 0 && is_op(editor_.node(next), "aten::relu")) {
      if (try_forward({position, next}, kNoValue, /*relu=*/true)) return;
    }
    const ValueId residual = next >= 0 ? addend(editor_, editor_.node(next), normalized) : kNoValue;
    if (residual != kNoValue) {
      const int32_t after = only_reader(editor_, result_at(editor_.node(next), 0));
      if (after >= 0 && is_op(editor_.node(after), "aten::relu")) {
        if (try_forward({position, next, after}, residual, /*relu=*/true)) return;
      }
    }
    try_forward({position}, kNoValue, /*relu=*/false);
  }

  bool try_forward(const std::vector<int32_t>& nodes, ValueId residual, bool relu) {
    const Node& norm = editor_.node(nodes[0]);
    const ValueId input = tensor_at(norm, 0);
    const ValueId counters = counters_.in(editor_, editor_.value(input).options.device());
    std::vector<Argument> arguments;
    for (size_t i = 0; i <= 4; ++i) arguments.push_back(tensor_argument(tensor_at(norm, i)));
    arguments.push_back(tensor_argument(residual));
    arguments.push_back(tensor_argument(counters));
    arguments.push_back(norm.arguments[6]);
    arguments.push_back(norm.arguments[7]);
    arguments.push_back(literal_argument(relu));
    arguments.push_back(literal_argument(/*keep_bits=*/false));
    for (size_t i = 0; i < 4; ++i) arguments.push_back(tensor_argument(kNoValue));  // kOfResidual
    Node fused = make_node(editor_.trace(), batch_norm_act_operator(), std::move(arguments),
                           {result_at(editor_.node(nodes.back()), 0), result_at(norm, 1),
                            result_at(norm, 2), kNoValue},
                           norm.scope);
    fused.writes = norm.writes;
    return count(editor_.fuse(nodes, std::move(fused)));
  }

  // ---- backward

  // The arguments that both forms have.
  struct Backward {
    ValueId grad, input, weight, mean, invstd;
  };
  static Backward backward_of(const Node& node) {
    const bool is_cudnn = is_op(node, kCudnnBackward);
    return {.grad = tensor_at(node, is_cudnn ? 1 : 0),
            .input = tensor_at(node, is_cudnn ? 0 : 1),
            .weight = tensor_at(node, 2),
            .mean = tensor_at(node, 5),
            .invstd = tensor_at(node, 6)};
  }

  bool is_backward(const Node& node) const {
    if (is_op(node, kNativeBackward)) {
      const c10::IValue& training = node.arguments[7].literal;
      if (!training.isBool() || !training.toBool()) return false;
    } else if (!is_op(node, kCudnnBackward)) {
      return false;
    }
    const Backward b = backward_of(node);
    if (b.mean == kNoValue || b.invstd == kNoValue || b.grad == kNoValue) return false;
    const ValueId result = result_at(node, 0);
    return is_matrix(editor_, b.input, device_) && is_float_vector(editor_, b.weight) &&
           is_float_vector(editor_, b.mean) && is_float_vector(editor_, b.invstd) &&
           editor_.value(b.grad).sizes == editor_.value(b.input).sizes &&
           editor_.value(b.grad).options.dtype() == editor_.value(b.input).options.dtype() &&
           (result == kNoValue || is_same_geometry(editor_.value(result), editor_.value(b.input)));
  }

  void fuse_backward(int32_t position) {
    const Backward b = backward_of(editor_.node(position));
    const int32_t relu = editor_.value(b.grad).producer;
    if (relu >= 0 && is_gradient_of_relu(editor_.node(relu), b)) {
      const ValueId grad = tensor_at(editor_.node(relu), 0);
      const int32_t sum = editor_.value(grad).producer;
      if (sum >= 0 && only_reader(editor_, grad) == relu) {
        const ValueId first = tensor_at(editor_.node(sum), 0);
        const ValueId second = addend(editor_, editor_.node(sum), first);
        if (second != kNoValue && try_backward({sum, relu, position}, relu, first, second)) return;
      }
      if (try_backward({relu, position}, relu, grad, kNoValue)) return;
    }
    try_backward({position}, -1, b.grad, kNoValue);
  }

  bool is_gradient_of_relu(const Node& node, const Backward& b) const {
    if (!is_op(node, "aten::threshold_backward") || !is_number(node, 2, 0)) return false;
    const Value& input = editor_.value(b.input);
    return is_same_geometry(editor_.value(tensor_at(node, 0)), input) &&
           is_same_geometry(editor_.value(tensor_at(node, 1)), input) &&
           is_same_geometry(editor_.value(b.grad), input) &&
           editor_.writers(editor_.value(b.grad).storage).empty();
  }

  bool try_backward(const std::vector<int32_t>& nodes, int32_t relu, ValueId grad, ValueId other) {
    const Node& norm = editor_.node(nodes.back());
    const Backward b = backward_of(norm);
    ValueId output = relu >= 0 ? tensor_at(editor_.node(relu), 1) : kNoValue;
    ReluMask mask = relu >= 0 ? ReluMask::kOfOutput : ReluMask::kNone;
    ValueId bias = kNoValue;
    if (relu >= 0 && is_relu_of_input(b, output, nodes.back())) {
      mask = ReluMask::kOfInput;
      bias = tensor_at(*editor_.producer(output), 2);
      output = kNoValue;
    } else if (relu >= 0 && can_have_bits(output)) {
      mask = ReluMask::kOfBits;
      output = bits_of(output);
    }
    const bool keep = relu >= 0 && !is_read_by_one(b.grad);
    const ValueId counters = counters_.in(editor_, editor_.value(b.input).options.device());
    std::vector<Argument> arguments;
    for (ValueId id : {grad, other, b.input, output, b.weight, bias, b.mean, b.invstd, counters}) {
      arguments.push_back(tensor_argument(id));
    }
    arguments.push_back(literal_argument(static_cast<int64_t>(mask)));
    arguments.push_back(
        literal_argument(static_cast<int64_t>(keep ? NormKeeps::kMasked : NormKeeps::kNothing)));
    Node fused = make_node(
        editor_.trace(), batch_norm_act_backward_operator(), std::move(arguments),
        {result_at(norm, 0), result_at(norm, 1), result_at(norm, 2), keep ? b.grad : kNoValue},
        norm.scope);
    return count(editor_.fuse(nodes, std::move(fused)));
  }

  bool is_read_by_one(ValueId id) const {
    return editor_.is_private(id) && editor_.readers(id).size() == 1;
  }

  // True if `output` is the relu of the normalised input alone, and its bias is still what it was.
  bool is_relu_of_input(const Backward& b, ValueId output, int32_t until) const {
    const int32_t position = editor_.value(output).producer;
    if (position < 0 || editor_.value(b.mean).producer != position) return false;
    const Node& forward = editor_.node(position);
    if (!is_fused(forward) || tensor_at(forward, kResidual) != kNoValue ||
        tensor_at(forward, 0) != b.input || tensor_at(forward, 1) != b.weight ||
        !forward.arguments[kRelu].literal.toBool()) {
      return false;
    }
    const ValueId bias = tensor_at(forward, 2);
    if (bias == kNoValue) return true;
    for (int32_t writer : editor_.writers(editor_.value(bias).storage)) {
      if (writer > position && writer < until) return false;
    }
    return true;
  }

  bool can_have_bits(ValueId output) const {
    const Value& value = editor_.value(output);
    return value.producer >= 0 && is_fused(editor_.node(value.producer)) &&
           editor_.node(value.producer).arguments[kRelu].literal.toBool() &&
           has_relu_bits(value.options.dtype().toScalarType(), value.sizes[1]);
  }

  // Has the node that makes `output` keep them.
  ValueId bits_of(ValueId output) {
    const Value& value = editor_.value(output);
    const int32_t position = value.producer;
    if (const ValueId kept = result_at(editor_.node(position), kBits); kept != kNoValue) {
      return kept;
    }
    const int64_t bytes = relu_bits_size(value.options.dtype().toScalarType(), elements_of(value));
    const ValueId bits = editor_.add_value({.producer = position,
                                            .sizes = {bytes},
                                            .strides = {1},
                                            .options = value.options.dtype(at::kByte),
                                            .storage_bytes = bytes});
    Node& node = editor_.edit(position);
    node.arguments[kKeepBits] = literal_argument(true);
    node.results[kBits].ids = {bits};
    return bits;
  }

  // ---- two that are added

  void take_in_norm_of_residual(int32_t position) {
    const Node& sum = editor_.node(position);
    if (!is_fused(sum) || tensor_at(sum, kResidual) == kNoValue) return;
    const int32_t other = editor_.value(tensor_at(sum, kResidual)).producer;
    if (other < 0 || !can_become_statistics(other, position)) return;
    const Node& norm = editor_.node(other);
    const ValueId mean = result_at(norm, 1), invstd = result_at(norm, 2);
    std::vector<Argument> of_both = sum.arguments;
    of_both[kResidual] = norm.arguments[0];
    of_both[kOfResidual] = norm.arguments[1];
    of_both[kOfResidual + 1] = norm.arguments[2];
    of_both[kOfResidual + 2] = tensor_argument(mean);
    of_both[kOfResidual + 3] = tensor_argument(invstd);
    std::vector<Argument> of_statistics;  // input, running ones, counters, momentum, epsilon
    for (size_t i : {0, 3, 4, 6, 7, 8}) of_statistics.push_back(norm.arguments[i]);
    replace(other, batch_norm_statistics_operator(), std::move(of_statistics), {mean, invstd});
    replace(position, batch_norm_act_operator(), std::move(of_both),
            {result_at(sum, 0), result_at(sum, 1), result_at(sum, 2), result_at(sum, kBits)});
    editor_.commit();
  }

  void replace(int32_t position, const c10::OperatorHandle& op, std::vector<Argument> arguments,
               const std::vector<ValueId>& results) {
    const Node& old = editor_.node(position);
    Node node = make_node(editor_.trace(), op, std::move(arguments), results, old.scope);
    node.writes = old.writes;
    editor_.remove(position);
    editor_.insert(position, std::move(node));
  }

  // True if the node `sum` alone reads what the node `position` makes besides its statistics, and
  // can make it itself.
  bool can_become_statistics(int32_t position, int32_t sum) const {
    const Node& norm = editor_.node(position);
    if (!is_fused(norm) || tensor_at(norm, kResidual) != kNoValue ||
        norm.arguments[kRelu].literal.toBool()) {
      return false;
    }
    const ValueId input = tensor_at(norm, 0), weight = tensor_at(norm, 1),
                  bias = tensor_at(norm, 2);
    const ValueId y = result_at(norm, 0), mean = result_at(norm, 1), invstd = result_at(norm, 2);
    const ValueId input_of_sum = tensor_at(editor_.node(sum), 0);
    if (only_reader(editor_, y) != sum || input_of_sum == y || mean == kNoValue ||
        invstd == kNoValue ||
        !is_same_geometry(editor_.value(input), editor_.value(input_of_sum))) {
      return false;
    }
    for (ValueId id : {input, weight, bias, mean, invstd}) {
      if (id != kNoValue && is_written_between(editor_, id, position, sum)) return false;
    }
    return true;
  }

  bool count(bool has_fused) {
    fused_ += has_fused ? 1 : 0;
    return has_fused;
  }

  TraceEditor editor_;
  c10::DeviceType device_;
  Counters counters_;
  int fused_ = 0;
};

}  // namespace

int fuse_batch_norm(Trace& trace, c10::DeviceType device) {
  return BatchNormFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
