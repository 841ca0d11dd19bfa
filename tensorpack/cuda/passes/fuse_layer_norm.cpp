// SPDX-License-Identifier: Apache-2.0
// Note [Fusing layer norm]
// In mixed precision the stream that residuals are added to is float, and what layers read and give
// is not: around each layer norm there is an addition and a cast, forward and backward. Each of
// them alone reads and writes as much as the norm. They become part of it, a change of shape in
// between or not. So does the sum over the rows of the gradient that goes on: the layer that gave
// the residual has it for its bias.
#include <algorithm>

#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"

namespace tensorpack::cuda {
namespace {

// Of layer_norm_backward.
constexpr size_t kSumArgument = 7, kKeepRowsArgument = 8, kCopyResult = 3, kSumResult = 4;

// A value that is made of another by nodes that move nothing but its type and shape.
struct Converted {
  ValueId id = kNoValue;
  std::vector<int32_t> nodes = {};
};

class LayerNormFusion {
 public:
  LayerNormFusion(Trace& trace, c10::DeviceType device) : editor_(trace), device_(device) {}

  int run() {
    const auto find = [&](const char* name, auto is_one) {
      for (int32_t i = 0; i < editor_.size(); ++i) {
        if (is_op(editor_.node(i), name) && is_one(editor_.node(i))) return i;
      }
      return int32_t{-1};
    };
    const auto find_forward = [&] {
      return find("aten::native_layer_norm", [&](const Node& n) { return is_forward(n); });
    };
    const auto find_backward = [&] {
      return find("aten::native_layer_norm_backward",
                  [&](const Node& n) { return is_backward(n); });
    };
    for (int32_t i = find_forward(); i >= 0; i = find_forward()) fuse_forward(i);
    for (int32_t i = find_backward(); i >= 0; i = find_backward()) fuse_backward(i);
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (is_op(editor_.node(i), "tensorpack::layer_norm_backward") && take_in_sum(i)) --i;
    }
    return fused_;
  }

 private:
  bool is_data(ValueId id) const { return is_dense_data(editor_.value(id), device_); }
  bool is_float(ValueId id) const {
    return id == kNoValue || (is_data(id) && editor_.value(id).options.dtype() == at::kFloat);
  }
  bool is_over_last_dimension(const Node& node, size_t argument, ValueId input) const {
    const c10::IValue& shape = node.arguments[argument].literal;
    const std::vector<int64_t>& sizes = editor_.value(input).sizes;
    return shape.isIntList() && shape.toIntVector().size() == 1 && !sizes.empty() &&
           shape.toIntVector()[0] == sizes.back() && fits_layer_norm(sizes.back());
  }
  bool is_cast(const Node& node) const {
    return is_op(node, "aten::_to_copy") && is_data(tensor_at(node, 0)) &&
           is_data(result_at(node, 0)) &&
           editor_.value(tensor_at(node, 0)).sizes == editor_.value(result_at(node, 0)).sizes;
  }
  bool is_reshape(const Node& node) const {
    return (is_op(node, "aten::view") || is_op(node, "aten::_reshape_alias")) &&
           is_data(tensor_at(node, 0)) && is_data(result_at(node, 0));
  }

  // ---- forward

  bool is_forward(const Node& node) const {
    const ValueId input = tensor_at(node, 0);
    return is_data(input) && is_over_last_dimension(node, 1, input) &&
           is_float(tensor_at(node, 2)) && is_float(tensor_at(node, 3)) &&
           is_data(result_at(node, 0)) && is_float(result_at(node, 1)) &&
           is_float(result_at(node, 2));
  }

  void fuse_forward(int32_t position) {
    const Converted y = cast_of(result_at(editor_.node(position), 0));
    const int32_t sum = editor_.value(tensor_at(editor_.node(position), 0)).producer;
    if (sum >= 0 && is_residual_sum(editor_.node(sum)) && try_forward(position, y, sum)) return;
    if (try_forward(position, y, -1)) return;
    try_forward(position, {result_at(editor_.node(position), 0), {}}, -1);
  }

  // The value's only use: a cast, perhaps of a view.
  Converted cast_of(ValueId id) const {
    const Converted itself{id, {}};
    const StorageId storage = editor_.value(id).storage;
    if (editor_.is_output(id) || editor_.readers(id).size() != 1 ||
        !editor_.writers(storage).empty()) {
      return itself;
    }
    const int32_t first = editor_.readers(id)[0];
    const size_t values = editor_.values_in(storage).size();
    if (is_cast(editor_.node(first)) && values == 1) {
      return {result_at(editor_.node(first), 0), {first}};
    }
    if (!is_reshape(editor_.node(first)) || values != 2) return itself;
    const ValueId view = result_at(editor_.node(first), 0);
    if (editor_.is_output(view) || editor_.readers(view).size() != 1) return itself;
    const int32_t second = editor_.readers(view)[0];
    if (!is_cast(editor_.node(second))) return itself;
    return {result_at(editor_.node(second), 0), {first, second}};
  }

  // The stream first, in the type of the sum.
  bool is_residual_sum(const Node& node) const {
    if (!is_op(node, "aten::add.Tensor") || !is_number(node, 2, 1)) return false;
    const ValueId stream = tensor_at(node, 0), residual = tensor_at(node, 1);
    const Value& sum = editor_.value(result_at(node, 0));
    return stream != kNoValue && residual != kNoValue && is_data(stream) && is_data(residual) &&
           is_same_geometry(editor_.value(stream), sum) &&
           editor_.value(residual).sizes == sum.sizes && editor_.writers(sum.storage).empty();
  }

  bool try_forward(int32_t position, const Converted& y, int32_t sum) {
    const Node& norm = editor_.node(position);
    const Value& result = editor_.value(y.id);
    const bool adds = sum >= 0;
    const ValueId input = adds ? tensor_at(editor_.node(sum), 0) : tensor_at(norm, 0);
    std::vector<Argument> arguments = {
        tensor_argument(input),
        tensor_argument(adds ? tensor_at(editor_.node(sum), 1) : kNoValue),
        tensor_argument(tensor_at(norm, 2)),
        tensor_argument(tensor_at(norm, 3)),
        norm.arguments[4],
        literal_argument(static_cast<int64_t>(result.options.dtype().toScalarType())),
        literal_argument(result.sizes)};
    std::vector<int32_t> nodes = {position};
    nodes.insert(nodes.end(), y.nodes.begin(), y.nodes.end());
    if (adds) nodes.insert(nodes.begin(), sum);
    return count(
        editor_.fuse(nodes, make_node(editor_.trace(), layer_norm_operator(), std::move(arguments),
                                      {y.id, adds ? tensor_at(norm, 0) : kNoValue,
                                       result_at(norm, 1), result_at(norm, 2)},
                                      norm.scope)));
  }

  // ---- backward

  bool is_backward(const Node& node) const {
    const ValueId grad = tensor_at(node, 0), input = tensor_at(node, 1);
    return is_data(grad) && is_data(input) && is_over_last_dimension(node, 2, input) &&
           is_float(tensor_at(node, 3)) && is_float(tensor_at(node, 4)) &&
           is_float(tensor_at(node, 5)) && result_at(node, 0) != kNoValue &&
           is_same_geometry(editor_.value(result_at(node, 0)), editor_.value(input));
  }

  void fuse_backward(int32_t position) {
    const Converted grad = source_of(tensor_at(editor_.node(position), 0));
    const ValueId result = result_at(editor_.node(position), 0);
    const int32_t sum = is_read_once(result) ? editor_.readers(result)[0] : -1;
    const ValueId other = sum >= 0 ? addend(editor_.node(sum), result) : kNoValue;
    if (other != kNoValue && try_backward(position, grad, sum, other)) return;
    if (try_backward(position, grad, -1, kNoValue)) return;
    fuse_backward_alone(position);
  }

  bool is_read_once(ValueId id) const {
    return editor_.is_private(id) && editor_.readers(id).size() == 1;
  }

  ValueId addend(const Node& node, ValueId id) const {
    if (!is_op(node, "aten::add.Tensor") || !is_number(node, 2, 1)) return kNoValue;
    const ValueId a = tensor_at(node, 0), b = tensor_at(node, 1);
    if (a == b || a == kNoValue || b == kNoValue) return kNoValue;
    const Value& sum = editor_.value(result_at(node, 0));
    if (!is_same_geometry(editor_.value(a), sum) || !is_same_geometry(editor_.value(b), sum)) {
      return kNoValue;
    }
    return a == id ? b : a;
  }

  // What a value, used once, was cast from, perhaps before a view.
  Converted source_of(ValueId id) const {
    const Converted itself{id, {}};
    const int32_t last = editor_.value(id).producer;
    const StorageId storage = editor_.value(id).storage;
    if (last < 0 || editor_.is_output(id) || editor_.readers(id).size() != 1 ||
        !editor_.writers(storage).empty()) {
      return itself;
    }
    const size_t values = editor_.values_in(storage).size();
    if (is_cast(editor_.node(last)) && values == 1) {
      return {tensor_at(editor_.node(last), 0), {last}};
    }
    if (!is_reshape(editor_.node(last)) || values != 2) return itself;
    const ValueId viewed = tensor_at(editor_.node(last), 0);
    const int32_t first = editor_.value(viewed).producer;
    if (first < 0 || editor_.is_output(viewed) || editor_.readers(viewed).size() != 1 ||
        !is_cast(editor_.node(first))) {
      return itself;
    }
    return {tensor_at(editor_.node(first), 0), {first, last}};
  }

  bool try_backward(int32_t position, const Converted& grad, int32_t sum, ValueId other) {
    const Node& norm = editor_.node(position);
    std::vector<int32_t> nodes = grad.nodes;
    nodes.push_back(position);
    if (sum >= 0) nodes.push_back(sum);
    const ValueId result = result_at(editor_.node(nodes.back()), 0);
    const int32_t cast = first_cast(result);
    if (cast >= 0) nodes.push_back(cast);
    return fuse_backward_as(nodes, norm, grad.id, other, result, cast);
  }

  void fuse_backward_alone(int32_t position) {
    const Node& norm = editor_.node(position);
    fuse_backward_as({position}, norm, tensor_at(norm, 0), kNoValue, result_at(norm, 0), -1);
  }

  // A cast of the value, of which the kernel may as well write a copy.
  int32_t first_cast(ValueId id) const {
    for (int32_t reader : editor_.readers(id)) {
      const Node& node = editor_.node(reader);
      if (is_cast(node) &&
          editor_.value(result_at(node, 0)).options.dtype() != editor_.value(id).options.dtype()) {
        return reader;
      }
    }
    return -1;
  }

  bool fuse_backward_as(const std::vector<int32_t>& nodes, const Node& norm, ValueId grad,
                        ValueId other, ValueId result, int32_t cast) {
    const ValueId copy = cast >= 0 ? result_at(editor_.node(cast), 0) : kNoValue;
    std::vector<Argument> arguments;
    for (ValueId id : {grad, tensor_at(norm, 1), tensor_at(norm, 5), tensor_at(norm, 3),
                       tensor_at(norm, 4), other}) {
      arguments.push_back(tensor_argument(id));
    }
    arguments.push_back(cast < 0 ? literal_argument({}) : type_argument(copy));
    arguments.push_back(literal_argument({}));
    arguments.push_back(literal_argument(false));
    Node fused =
        make_node(editor_.trace(), layer_norm_backward_operator(), std::move(arguments),
                  {result, result_at(norm, 1), result_at(norm, 2), copy, kNoValue}, norm.scope);
    return count(editor_.fuse(nodes, std::move(fused)));
  }

  Argument type_argument(ValueId id) const {
    return literal_argument(static_cast<int64_t>(editor_.value(id).options.dtype().toScalarType()));
  }

  // Of the copy, or of the gradient itself where there is none.
  bool take_in_sum(int32_t position) {
    Node norm = editor_.node(position);
    const ValueId copy = result_at(norm, kCopyResult);
    const ValueId summed = copy != kNoValue ? copy : result_at(norm, 0);
    const int64_t columns = editor_.value(summed).sizes.back();
    if (result_at(norm, kSumResult) != kNoValue || !fits_layer_norm_sum(columns)) return false;
    const RowSum sum = find_row_sum(editor_, summed, columns);
    if (sum.position < 0) return false;
    const ValueId sums = result_at(editor_.node(sum.position), 0);
    const std::vector<int64_t>& sizes = editor_.value(sums).sizes;
    if (sizes.size() > 2) return false;  // of images
    norm.arguments[kSumArgument] = type_argument(sums);
    norm.arguments[kKeepRowsArgument] = literal_argument(sizes.size() == 2);
    norm.results[kSumResult].ids = {sums};
    return fuse_with_row_sum(editor_, {position}, summed, sum, std::move(norm));
  }

  bool count(bool is_fused) {
    fused_ += is_fused ? 1 : 0;
    return is_fused;
  }

  TraceEditor editor_;
  c10::DeviceType device_;
  int fused_ = 0;
};

}  // namespace

int fuse_layer_norm(Trace& trace, c10::DeviceType device) {
  return LayerNormFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
