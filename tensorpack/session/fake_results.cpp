// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/fake_results.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <set>
#include <string>
#include <utility>

#include "tensorpack/graph/captured_tensor.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr int64_t kAlignment = 64;

// Not an error: the function is called again and computes.
struct CannotBeFaked {
  std::string reason;
};

bool is_plain(const Value& value) { return value.storage_bytes >= 0; }

bool has_tensor(c10::ArrayRef<c10::IValue> arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    return (value.isTensor() && value.toTensor().defined()) || value.isTensorList() ||
           value.isOptionalTensorList();
  });
}

// Its results are arguments, or parts of their memory.
bool is_view(const c10::OperatorHandle& op) {
  static const std::set<std::string> undeclared = {
      "aten::_unsafe_view",
      "aten::unsafe_chunk",
      "aten::unsafe_split",
      "aten::unsafe_split_with_sizes",
  };
  if (undeclared.contains(op.operator_name().name)) return true;
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::all_of(returns.begin(), returns.end(), [](const auto& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

}  // namespace

// Addresses that read as 0 and take no memory as long as nothing is written to them.
class FakeResults::Memory {
 public:
  explicit Memory(int64_t bytes) : bytes_(std::max(bytes, kAlignment)) {
    void* const start = mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) throw CannotBeFaked{"there are no addresses for its results"};
    start_ = static_cast<char*>(start);
  }
  ~Memory() { munmap(start_, static_cast<size_t>(bytes_)); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  static int64_t aligned(int64_t bytes) {
    return (bytes + kAlignment) / kAlignment * kAlignment;  // of an empty tensor, too
  }
  char* take(int64_t bytes) {
    const int64_t offset = used_.fetch_add(aligned(bytes));
    if (offset + aligned(bytes) > bytes_) throw CannotBeFaked{"it has more results than before"};
    return start_ + offset;
  }

 private:
  int64_t bytes_;
  char* start_ = nullptr;
  std::atomic<int64_t> used_{0};  // autograd may have threads of its own
};

FakeResults::FakeResults(const Trace& trace) : trace_(trace) {
  for (const Node& node : trace.nodes) {
    std::optional<Call> call = call_of(node);
    if (!call) continue;
    for (const std::vector<Source>& result : call->results) {
      for (const Source& source : result) {
        if (source.shape == kNoValue) continue;
        bytes_ += Memory::aligned(value(source.shape).storage_bytes);
      }
    }
    std::vector<Call>& known = calls_[&node.op.schema()];
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const Call& other) {
      return have_equal_shapes(*other.node, node);
    });
    if (!is_known) known.push_back(std::move(*call));
  }
}

std::shared_ptr<FakeResults::Memory> FakeResults::reserve() const {
  return std::make_shared<Memory>(bytes_);
}

std::optional<FakeResults::Call> FakeResults::call_of(const Node& node) const {
  if (node.is_view || node.changes_metadata ||
      leaves_result_uninitialised(node.op.operator_name().name)) {
    return std::nullopt;
  }
  bool has_tensor = false;
  bool are_plain = true;
  node.for_each_argument([&](ValueId id) {
    has_tensor = true;
    are_plain &= is_plain(value(id));
  });
  if (!has_tensor || !are_plain) return std::nullopt;
  Call call{&node, {}};
  for (const Result& result : node.results) {
    if (result.ids.empty() && !result.is_list) return std::nullopt;  // not a tensor
    std::vector<Source>& sources = call.results.emplace_back();
    for (const ValueId id : result.ids) {
      const std::optional<Source> source = source_of(node, id);
      if (!source) return std::nullopt;
      sources.push_back(*source);
    }
  }
  return call;
}

std::optional<FakeResults::Source> FakeResults::source_of(const Node& node, ValueId id) const {
  if (id == kNoValue) return Source{};
  const auto& arguments = node.op.schema().arguments();
  std::optional<Source> found;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const std::vector<ValueId>& ids = node.arguments[i].ids;
    const auto position = std::find(ids.begin(), ids.end(), id);
    if (position == ids.end()) continue;
    const bool is_written =
        arguments[i].alias_info() != nullptr && arguments[i].alias_info()->isWrite();
    if (!found || is_written) {
      found = Source{.argument = static_cast<int32_t>(i),
                     .position = static_cast<int32_t>(position - ids.begin())};
    }
    if (is_written) break;
  }
  if (found) return found;
  // New memory, that of this result alone.
  const StorageId storage = value(id).storage;
  int sharing = 0;
  node.for_each_argument(
      [&](ValueId other) { sharing += value(other).storage == storage ? 1 : 0; });
  node.for_each_result([&](ValueId other) { sharing += value(other).storage == storage ? 1 : 0; });
  if (sharing != 1 || !is_plain(value(id))) return std::nullopt;
  return Source{.shape = id};
}

bool FakeResults::has_shape_of(const at::Tensor& tensor, ValueId id) const {
  if (id == kNoValue || !tensor.defined()) return id == kNoValue && !tensor.defined();
  const Value& recorded = value(id);
  return tensor.layout() == at::kStrided && tensor.sizes() == recorded.sizes &&
         tensor.strides() == recorded.strides && tensor.dtype() == recorded.options.dtype() &&
         tensor.device() == recorded.options.device() && !tensor.is_conj() && !tensor.is_neg() &&
         is_wrapped_number(tensor) == is_wrapped_number(recorded.tensor);
}

bool FakeResults::have_shapes_of(const c10::IValue& tensors, const Argument& argument) const {
  const auto are_equal = [&](const auto& list, auto tensor_of) {
    if (list.size() != argument.ids.size()) return false;
    for (size_t i = 0; i < list.size(); ++i) {
      if (!has_shape_of(tensor_of(list[i]), argument.ids[i])) return false;
    }
    return true;
  };
  switch (argument.kind) {
    case Argument::Kind::kTensor:
      return tensors.isTensor() && has_shape_of(tensors.toTensor(), argument.ids[0]);
    case Argument::Kind::kTensorList:
      return tensors.isTensorList() &&
             are_equal(tensors.toTensorVector(), [](const at::Tensor& tensor) { return tensor; });
    case Argument::Kind::kOptionalTensorList:
      return tensors.isOptionalTensorList() &&
             are_equal(tensors.toOptionalTensorVector(),
                       [](const auto& tensor) { return tensor.value_or(at::Tensor()); });
    case Argument::Kind::kLiteral:
      break;
  }
  return is_same_literal(argument.literal, tensors);
}

bool FakeResults::is_call_of(const Node& node, c10::ArrayRef<c10::IValue> arguments) const {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!have_shapes_of(arguments[i], node.arguments[i])) return false;
  }
  return true;
}

bool FakeResults::have_equal_shapes(const Node& a, const Node& b) const {
  const auto is_equal = [&](ValueId x, ValueId y) {
    if (x == kNoValue || y == kNoValue) return x == y;
    return value(x).sizes == value(y).sizes && value(x).strides == value(y).strides &&
           value(x).options.dtype() == value(y).options.dtype() &&
           value(x).options.device() == value(y).options.device() &&
           is_wrapped_number(value(x).tensor) == is_wrapped_number(value(y).tensor);
  };
  return std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    [&](const Argument& x, const Argument& y) {
                      return x.kind == y.kind &&
                             std::equal(x.ids.begin(), x.ids.end(), y.ids.begin(), y.ids.end(),
                                        is_equal) &&
                             is_same_literal(x.literal, y.literal);
                    });
}

bool FakeResults::replace_call(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                               const std::shared_ptr<Memory>& memory) const {
  const auto known = calls_.find(&op.schema());
  if (known == calls_.end()) return false;
  const size_t count = op.schema().arguments().size();
  const auto arguments = torch::jit::last(*stack, count);
  const auto call = std::find_if(known->second.begin(), known->second.end(), [&](const Call& call) {
    return is_call_of(*call.node, arguments);
  });
  if (call == known->second.end()) return false;
  const auto tensor_from = [&](const Source& source) -> at::Tensor {
    if (source.argument >= 0) {
      const c10::IValue& argument = arguments[static_cast<size_t>(source.argument)];
      const auto position = static_cast<size_t>(source.position);
      if (argument.isTensor()) return argument.toTensor();
      if (argument.isTensorList()) return argument.toTensorVector()[position];
      return *argument.toOptionalTensorVector()[position];
    }
    if (source.shape == kNoValue) return {};
    const Value& shape = value(source.shape);
    return at::for_blob(memory->take(shape.storage_bytes), shape.sizes)
        .strides(shape.strides)
        .deleter([memory](void*) {})
        .options(shape.options)
        .target_device(shape.options.device())
        .make_tensor();
  };
  std::vector<c10::IValue> results;
  for (size_t i = 0; i < call->results.size(); ++i) {
    std::vector<at::Tensor> tensors;
    for (const Source& source : call->results[i]) tensors.push_back(tensor_from(source));
    if (call->node->results[i].is_list) {
      results.emplace_back(std::move(tensors));
    } else {
      results.emplace_back(std::move(tensors.at(0)));
    }
  }
  torch::jit::drop(*stack, count);
  for (c10::IValue& result : results) stack->push_back(std::move(result));
  return true;
}

namespace {

class FakeRun final : public OperatorWatch {
 public:
  FakeRun(const FakeResults& results, std::shared_ptr<FakeResults::Memory> memory)
      : results_(results), memory_(std::move(memory)) {}

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override {
    if (results_.replace_call(op, stack, memory_)) return;
    // What makes memory, and what only looks at shapes.
    const bool is_real = leaves_result_uninitialised(op.operator_name().name) || is_view(op) ||
                         !has_tensor(torch::jit::last(*stack, op.schema().arguments().size())) ||
                         reads_only_metadata(op.operator_name().name);
    if (!is_real || changes_metadata(op)) throw CannotBeFaked{"it calls " + name_of(op)};
    pass_on(op, below, stack);
  }

 private:
  const FakeResults& results_;
  std::shared_ptr<FakeResults::Memory> memory_;
};

}  // namespace

std::optional<Recording> record_on_fake_results(Graph& graph, const Op& op,
                                                const std::vector<at::Tensor>& inputs,
                                                const FakeResults& results) {
  // Whatever goes wrong here goes wrong again, or does not, when the function computes.
  try {
    std::weak_ptr<FakeResults::Memory> kept;
    Recording recording;
    {
      const std::shared_ptr<FakeResults::Memory> memory = results.reserve();
      kept = memory;
      const WatchScope watch(std::make_shared<FakeRun>(results, memory));
      recording = record_op(graph, op, inputs).recording;
    }
    recording.outputs.clear();
    if (!kept.expired()) throw CannotBeFaked{"it keeps a result"};
    return recording;
  } catch (const CannotBeFaked& failure) {
    logging::debug("Op '{}' computes to be compared: {}.", op.name(), failure.reason);
  } catch (const std::exception& error) {
    logging::debug("Op '{}' computes to be compared: {}", op.name(), error.what());
  }
  return std::nullopt;
}

}  // namespace tensorpack
