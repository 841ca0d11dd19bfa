// SPDX-License-Identifier: Apache-2.0
// Note [Making things again]
// A training step holds most memory when the backward pass begins: all that the forward pass made
// for it. Some of that can be made again, bit by bit, of what is held anyway: relu(batch_norm(x))
// of x and its statistics. So the cheapest such value that is held where most is held, but not used
// there, is let go after its last use before and made again in front of the next; then the place
// is looked for anew. A residual that is made again is at hand for the block after it, so that
// whole chains are. In the end, nothing is made again that did not lower the peak.
//
// Most cheaply it is made on the way. Where the gradient of the weights of a convolution alone
// needs relu(batch_norm(x)), and the gradient of its input goes to that batch norm, whose backward
// pass reads x anyway, the latter writes it, and the gradient of the weights is computed behind it.
//
// Next come convolutions over single pixels that make many channels of few, such as the last of a
// bottleneck: what they read is small, and they are done while it is read and written.
#include <algorithm>
#include <array>
#include <optional>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"
#include "tensorpack/cuda/passes/pointwise_rules.h"
#include "tensorpack/graph/memory_use.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::cuda {
namespace {

// Of the peak: what is smaller is not worth a kernel.
constexpr int64_t kSmallestShare = 1000;
// Of a value's memory: what it is made of is kept longer for it, if it takes no more.
constexpr int64_t kLittleShare = 4;
// Of a convolution, for each byte that it reads or writes: with more it takes longer than that.
constexpr double kMostOperationsOfByte = 128;

struct Again {
  ValueId value = kNoValue;
  int32_t made_at = 0;
  int32_t before = 0;          // the node in front of which it is made again
  int32_t norm_backward = -1;  // the node that makes it on the way, if one does
  int64_t bytes = 0;           // that are let go, less what is kept for it
  int64_t traffic = 0;         // read and written to make it

  double cost() const { return static_cast<double>(traffic) / static_cast<double>(bytes); }

  // The less traffic for a byte, the better; else the larger, so that few do; else the later, whose
  // residual is then needed first.
  bool is_better_than(const Again& other) const {
    if (cost() != other.cost()) return cost() < other.cost();
    return bytes != other.bytes ? bytes > other.bytes : made_at > other.made_at;
  }
};

class Recomputation {
 public:
  Recomputation(Trace& trace, c10::DeviceType device, double most_traffic)
      : editor_(trace), device_(device), most_traffic_(most_traffic) {}

  // Makes one value again that is held at the peak; false if none can be.
  bool step(const MemoryUse& memory) {
    std::optional<Again> best;
    for (int32_t i = 0; i < memory.peak_position(); ++i) {
      const Node& node = editor_.node(i);
      if (!is_cheap(node)) continue;
      node.for_each_result([&](ValueId id) {
        if (is_normalized(node) && id != result_at(node, 0)) return;  // its statistics
        const auto found = look_at(id, i, memory);
        if (found && (!best || found->is_better_than(*best))) best = found;
      });
    }
    if (!best) return false;
    if (best->norm_backward >= 0) {
      make_on_the_way(*best);
    } else {
      make_again(*best);
    }
    return true;
  }

 private:
  // Arguments of batch_norm_act, of which the last stands for four, and of its backward pass.
  static constexpr size_t kInput = 0, kWeight = 1, kBias = 2, kResidual = 5, kRelu = 9,
                          kOfResidual = 11;
  static constexpr size_t kInputOfBackward = 2, kMeanOfBackward = 6, kMask = 9, kKeeps = 10;
  static constexpr size_t kKept = 3;              // a result of the latter
  static constexpr size_t kConvolutionInput = 1;  // of a convolution's backward pass

  static bool is_normalized(const Node& node) { return is_op(node, "tensorpack::batch_norm_act"); }

  bool is_cheap(const Node& node) const {
    static constexpr std::array kFused = {"tensorpack::bias_relu", "tensorpack::layer_norm",
                                          "tensorpack::pointwise"};
    if (is_normalized(node)) {
      return result_at(node, 1) != kNoValue && result_at(node, 2) != kNoValue;
    }
    return std::any_of(kFused.begin(), kFused.end(),
                       [&](const char* name) { return is_op(node, name); }) ||
           is_cheap_convolution(node) ||
           (node.writes.empty() && as_pointwise(editor_, node, device_).has_value());
  }

  // Over single pixels, and bounded by the memory.
  bool is_cheap_convolution(const Node& node) const {
    if (!is_op(node, "aten::convolution") || tensor_at(node, kConvolutionBias) != kNoValue) {
      return false;
    }
    const Value& input = editor_.value(tensor_at(node, 0));
    const Value& weight = editor_.value(tensor_at(node, 1));
    const Value& output = editor_.value(result_at(node, 0));
    if (weight.sizes.size() != 4 || weight.sizes[2] * weight.sizes[3] != 1) return false;
    const auto elements = static_cast<double>(elements_of(output));
    const double operations = 2 * elements * static_cast<double>(weight.sizes[1]);
    const double touched = elements + static_cast<double>(elements_of(input));
    return operations <=
           kMostOperationsOfByte * touched * static_cast<double>(output.options.dtype().itemsize());
  }

  // If the value may be let go while most is held.
  std::optional<Again> look_at(ValueId id, int32_t made_at, const MemoryUse& memory) const {
    const Value& value = editor_.value(id);
    const int32_t peak = memory.peak_position();
    const int64_t bytes = memory.bytes(value.storage);
    if (value.producer != made_at || is_made_again(id) || !editor_.is_private(id) ||
        value.options.device().type() != device_ || bytes * kSmallestShare < memory.peak() ||
        !memory.is_held(value.storage, peak)) {
      return std::nullopt;
    }
    const std::vector<int32_t>& readers = editor_.readers(id);
    const auto next = std::lower_bound(readers.begin(), readers.end(), peak);
    if (next == readers.end() || *next == peak) return std::nullopt;
    Again again{.value = id, .made_at = made_at, .before = *next, .bytes = bytes, .traffic = bytes};
    if (next + 1 == readers.end()) again.norm_backward = norm_backward_behind(id, *next);
    if (again.norm_backward >= 0) return again;
    int64_t kept_for_it = 0;
    bool is_possible = true;
    node_again(editor_.node(made_at), id).for_each_argument([&](ValueId argument) {
      const StorageId storage = editor_.value(argument).storage;
      again.traffic += std::max<int64_t>(editor_.value(argument).storage_bytes, 0);
      if (!memory.is_held(storage, *next)) kept_for_it += memory.bytes(storage);
      is_possible &= !is_written_between(storage, made_at, *next);
    });
    if (!is_possible || kept_for_it * kLittleShare > bytes) return std::nullopt;
    again.bytes -= kept_for_it;
    return again.cost() <= most_traffic_ ? std::optional(again) : std::nullopt;
  }

  // Batch norm's backward pass that can make the value for the gradient of weights that the node
  // `convolution` computes of it; -1 if there is none.
  int32_t norm_backward_behind(ValueId id, int32_t convolution) const {
    const Node& norm = *editor_.producer(id);
    const Node& node = editor_.node(convolution);
    if (!is_normalized(norm) || tensor_at(norm, kResidual) != kNoValue ||
        !norm.arguments[kRelu].literal.toBool() || !is_convolution_backward(node) ||
        tensor_at(node, kConvolutionInput) != id || tensor_at(node, 0) == id ||
        result_at(node, 0) == kNoValue || result_at(node, 1) == kNoValue ||
        !is_same_geometry(editor_.value(id), editor_.value(tensor_at(norm, kInput)))) {
      return -1;
    }
    const int32_t behind = only_reader(editor_, result_at(node, 0));
    if (behind < 0) return -1;
    const Node& backward = editor_.node(behind);
    const bool makes_it = is_op(backward, "tensorpack::batch_norm_act_backward") &&
                          tensor_at(backward, 0) == result_at(node, 0) &&
                          tensor_at(backward, kInputOfBackward) == tensor_at(norm, kInput) &&
                          tensor_at(backward, kMeanOfBackward) == result_at(norm, 1) &&
                          is_number(backward, kMask, static_cast<double>(ReluMask::kOfInput)) &&
                          is_number(backward, kKeeps, static_cast<double>(NormKeeps::kNothing));
    return makes_it && can_follow(node, convolution, behind) ? behind : -1;
  }

  // Whether the gradients of parameters may as well be computed behind the node `behind`.
  bool can_follow(const Node& node, int32_t convolution, int32_t behind) const {
    bool can = node.writes.empty();
    node.for_each_argument([&](ValueId id) {
      can &= !is_written_between(editor_.value(id).storage, convolution, behind + 1);
    });
    for (size_t result : {1, 2}) {
      const ValueId id = result_at(node, result);
      if (id == kNoValue) continue;
      const std::vector<int32_t>& readers = editor_.readers(id);
      can &= editor_.is_private(id) && (readers.empty() || readers.front() > behind);
    }
    return can;
  }

  bool is_made_again(ValueId id) const {
    return std::find(made_again_.begin(), made_again_.end(), id) != made_again_.end();
  }

  bool is_written_between(StorageId storage, int32_t begin, int32_t end) const {
    const std::vector<int32_t> writers = editor_.writers(storage);
    return std::any_of(writers.begin(), writers.end(),
                       [&](int32_t writer) { return writer > begin && writer < end; });
  }

  // What makes `id`, without its effects. Its other results are made once more, too.
  Node node_again(const Node& node, ValueId id) const {
    if (!is_normalized(node)) return node;
    std::vector<Argument> arguments;
    for (size_t i : {kInput, kWeight, kBias, kResidual}) arguments.push_back(node.arguments[i]);
    arguments.push_back(tensor_argument(result_at(node, 1)));
    arguments.push_back(tensor_argument(result_at(node, 2)));
    arguments.push_back(node.arguments[kRelu]);
    for (size_t i = 0; i < 4; ++i) arguments.push_back(node.arguments[kOfResidual + i]);
    return make_node(editor_.trace(), batch_norm_act_again_operator(), std::move(arguments), {id},
                     node.scope);
  }

  void make_again(const Again& again) {
    Node node = node_again(*editor_.producer(again.value), again.value);
    ValueId made = kNoValue;
    for (Result& result : node.results) {
      for (ValueId& id : result.ids) {
        if (id == kNoValue) continue;
        const ValueId once_more = add_value_like(editor_, id);
        if (id == again.value) made = once_more;
        id = once_more;
      }
    }
    made_again_.push_back(made);
    editor_.replace_uses(again.value, made, again.before);
    editor_.insert(again.before, std::move(node));
    editor_.commit();
  }

  void make_on_the_way(const Again& again) {
    Value value = editor_.value(again.value);
    value.storage = -1;
    value.producer = again.norm_backward;
    const ValueId made = editor_.add_value(value);
    made_again_.push_back(made);
    Node& backward = editor_.edit(again.norm_backward);
    backward.arguments[kKeeps] = literal_argument(static_cast<int64_t>(NormKeeps::kOutput));
    backward.results[kKept].ids = {made};
    Node of_weights = take_parameter_gradients(editor_, again.before);
    read_instead(of_weights, made);
    // The gradient of the input asks for its sizes alone, and those are the same.
    read_instead(editor_.edit(again.before), tensor_at(backward, kInputOfBackward));
    editor_.insert(again.norm_backward + 1, std::move(of_weights));
    editor_.commit();
  }

  // Has a convolution's backward pass read `id` as its input.
  void read_instead(Node& node, ValueId id) const {
    const StorageId before = editor_.value(tensor_at(node, kConvolutionInput)).storage;
    std::replace(node.reads.begin(), node.reads.end(), before, editor_.value(id).storage);
    node.arguments[kConvolutionInput] = tensor_argument(id);
  }

  TraceEditor editor_;
  c10::DeviceType device_;
  double most_traffic_;
  std::vector<ValueId> made_again_;
};

}  // namespace

int recompute(Trace& trace, c10::DeviceType device, const RecomputeLimits& limits) {
  Trace tried = trace;
  Recomputation recomputation(tried, device, limits.most_traffic);
  MemoryUse memory(tried);
  const int64_t before = memory.peak();
  int64_t least = before;
  int made = 0, made_for_least = 0;
  while (least > limits.enough && recomputation.step(memory)) {
    ++made;
    memory = MemoryUse(tried);
    if (memory.peak() >= least) continue;
    least = memory.peak();
    made_for_least = made;
    trace = tried;
  }
  if (made_for_least > 0) {
    logging::info_once("Every step makes {} again: it holds {} of results, not {}.",
                       counted(made_for_least, "result"),
                       humanize_bytes(static_cast<std::uint64_t>(least)),
                       humanize_bytes(static_cast<std::uint64_t>(before)));
  }
  return made_for_least;
}

}  // namespace tensorpack::cuda
