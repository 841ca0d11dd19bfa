// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/recorder.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/called_functions.h"
#include "tensorpack/graph/checksum.h"
#include "tensorpack/graph/gradient_scopes.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/random_stream.h"
#include "tensorpack/graph/tensor_key.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// For messages: " in scope 'conv0'", or nothing.
std::string in_scope() {
  const std::string& path = VariableScope::current_path();
  return path.empty() ? "" : " in scope '" + path + "'";
}

// For messages: " (called by aten::one_hot)", or nothing if the user called the operator itself.
std::string called_by(const c10::OperatorHandle& op) {
  const std::string caller = CalledFunctions::outermost();
  return caller.empty() || caller == op.operator_name().name ? "" : " (called by " + caller + ")";
}

// All of the memory that `tensor` is a part of.
at::Tensor memory_view(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  return tensor.detach().as_strided({count}, {1}, 0);
}

bool contains(const std::vector<int>& list, size_t item) {
  return std::find(list.begin(), list.end(), static_cast<int>(item)) != list.end();
}

void copy_tensors(const c10::IValue& value, std::vector<at::Tensor>& copies) {
  at::NoGradGuard no_grad;
  if (value.isTensor()) {
    copies.push_back(value.toTensor().defined() ? value.toTensor().detach().clone() : at::Tensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      copies.push_back(tensor.defined() ? tensor.detach().clone() : at::Tensor());
    }
  }
}

// One recording in progress. Autograd may call it from threads of its own.
class Recorder final : public OperatorWatch {
 public:
  Recorder(const RecordOptions& options, GradientScopes& scopes)
      : check_undeclared_writes_(options.check_undeclared_writes),
        keep_results_(options.keep_results),
        scopes_(scopes) {}

  ValueId add_external(const at::Tensor& tensor, ValueKind kind, const std::string& name);
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override;
  void add_output(const std::string& name, const at::Tensor& tensor);
  void finish(Recording& recording);
  void restore_foreign_state() const { foreign_.restore(); }

 private:
  // A piece of memory. The weak reference keeps the StorageImpl's address from being used again,
  // yet lets the memory go as in a normal run.
  struct Memory {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    at::Tensor without_storage = {};  // sparse and other opaque tensors
    enum class Host : uint8_t {
      kNone,
      kUntouched,  // made by empty(); no operator has written or read it yet
      kFrozen,     // read though no operator wrote it: a constant, its contents come from the host
    } host = Host::kNone;
    int32_t empty_node = -1;       // that empty() ...
    at::Tensor empty_tensor = {};  // ... and what it returned
    bool is_foreign = false;       // an input, or made by neither the graph nor an operator
    bool is_saved = false;         // foreign, and its contents are kept for restore
  };
  struct Pending {
    Node node;
    std::vector<std::pair<at::Tensor, uint64_t>> checksums;
  };

  bool is_set_to_known_memory(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  StorageId memory_id(const at::Tensor& tensor);
  ValueId add_value(const at::Tensor& tensor, ValueKind kind, int32_t producer);
  ValueId use(const at::Tensor& tensor, bool reads_contents);
  ValueId rebuild_view(const at::Tensor& tensor, StorageId storage);
  void before_read(StorageId storage);
  void before_write(const at::Tensor& tensor, StorageId storage, bool overwrites);
  void freeze_host_contents(StorageId storage);
  void copy_frozen_contents(StorageId storage);
  Pending before(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                 const torch::jit::Stack& stack);
  void after(Pending pending, const torch::jit::Stack& stack);
  ValueId result(const at::Tensor& tensor, const Node& node, int32_t index, bool& is_new,
                 bool& has_fresh_memory);
  void check_literal(const c10::IValue& value, const Node& node);
  void before_draw(const at::Generator& generator);
  void remark(std::string text);
  void push_node(Node node, bool dropped, std::vector<at::Tensor> results);

  const bool check_undeclared_writes_;
  const bool keep_results_;
  GradientScopes& scopes_;
  std::mutex mutex_;
  Trace trace_;
  std::vector<char> dropped_;  // nodes that turned out to do nothing
  std::vector<std::vector<at::Tensor>> results_;
  std::unordered_map<TensorKey, ValueId, TensorKeyHash> ids_;
  std::vector<Memory> memories_;
  std::unordered_map<const void*, StorageId> memory_ids_;
  SavedState foreign_;
  std::vector<at::Generator> generators_;
  std::vector<std::string> remarks_;
};

void Recorder::remark(std::string text) {
  if (std::find(remarks_.begin(), remarks_.end(), text) == remarks_.end()) {
    remarks_.push_back(std::move(text));
  }
}

StorageId Recorder::memory_id(const at::Tensor& tensor) {
  const void* address = memory_of(tensor);
  auto found = memory_ids_.find(address);
  if (found != memory_ids_.end()) return found->second;
  const auto id = static_cast<StorageId>(memories_.size());
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;
  if (tensor.has_storage()) {
    memories_.push_back({.storage = tensor.storage().getWeakStorageImpl()});
  } else {
    memories_.push_back({.storage = WeakStorage(c10::intrusive_ptr<c10::StorageImpl>()),
                         .without_storage = tensor});
  }
  memory_ids_.emplace(address, id);
  return id;
}

ValueId Recorder::add_value(const at::Tensor& tensor, ValueKind kind, int32_t producer) {
  Value value;
  value.kind = kind;
  value.storage = memory_id(tensor);
  value.producer = producer;
  if (tensor.layout() == at::kStrided && tensor.has_storage()) {
    value.sizes = tensor.sizes().vec();
    value.strides = tensor.strides().vec();
    value.options = tensor.options().requires_grad(false);
    if (!tensor.is_conj() && !tensor.is_neg()) {
      value.storage_bytes = static_cast<int64_t>(tensor.storage().nbytes());
    }
  }
  const auto id = static_cast<ValueId>(trace_.values.size());
  trace_.values.push_back(std::move(value));
  ids_[key_of(tensor)] = id;
  return id;
}

ValueId Recorder::add_external(const at::Tensor& tensor, ValueKind kind, const std::string& name) {
  const ValueId id = add_value(tensor, kind, -1);
  trace_.values[id].name = name;
  if (kind == ValueKind::kInput) {
    trace_.inputs.push_back(id);
    memories_[trace_.values[id].storage].is_foreign = true;
  } else {
    trace_.values[id].tensor = tensor.detach();
  }
  return id;
}

// The value that a tensor argument stands for.
ValueId Recorder::use(const at::Tensor& tensor, bool reads_contents) {
  auto found = ids_.find(key_of(tensor));
  if (found != ids_.end()) {
    if (reads_contents) before_read(trace_.values[found->second].storage);
    return found->second;
  }
  auto memory = memory_ids_.find(memory_of(tensor));
  if (memory != memory_ids_.end()) {
    if (reads_contents) before_read(memory->second);
    return rebuild_view(tensor, memory->second);
  }
  const ValueId id = add_value(tensor, ValueKind::kConstant, -1);
  trace_.values[id].tensor = tensor;  // the very tensor: it may be a wrapped number
  memories_[trace_.values[id].storage].is_foreign = true;
  return id;
}

void Recorder::before_read(StorageId storage) {
  if (memories_[storage].host == Memory::Host::kUntouched) freeze_host_contents(storage);
}

// Memory from empty() that no operator wrote is about to be read: the host wrote it through a
// pointer (torch::tensor({...}), accessors). Its contents become a constant.
void Recorder::freeze_host_contents(StorageId storage) {
  Memory& memory = memories_[storage];
  dropped_[memory.empty_node] = 1;
  Value& value = trace_.values[trace_.nodes[memory.empty_node].results[0].ids[0]];
  value.kind = ValueKind::kConstant;
  value.producer = -1;
  value.tensor = memory.empty_tensor;
  memory.host = Memory::Host::kFrozen;
  remark("memory filled by host code is frozen as a constant");
}

// A frozen constant is written after all: every run must start from a copy of its own, so clone()
// takes the place of the empty() that made it.
void Recorder::copy_frozen_contents(StorageId storage) {
  static const auto clone = c10::Dispatcher::singleton().findSchemaOrThrow("aten::clone", "");
  const int32_t index = memories_[storage].empty_node;
  const at::Tensor contents = [&] {
    at::NoGradGuard no_grad;
    return memories_[storage].empty_tensor.clone();
  }();
  const ValueId source = add_value(contents, ValueKind::kConstant, -1);
  trace_.values[source].tensor = contents;
  Node& node = trace_.nodes[index];
  node.op = clone;
  node.keys = {};
  node.arguments = {{Argument::Kind::kTensor, {source}, {}}, {}};
  node.reads = {trace_.values[source].storage};
  dropped_[index] = 0;
  if (keep_results_) results_[index] = {contents};
  Value& value = trace_.values[node.results[0].ids[0]];
  value.kind = ValueKind::kComputed;
  value.producer = index;
  value.tensor = at::Tensor();
}

void Recorder::before_write(const at::Tensor& tensor, StorageId storage, bool overwrites) {
  if (memories_[storage].host == Memory::Host::kUntouched && !overwrites) {
    freeze_host_contents(storage);
  }
  if (memories_[storage].host == Memory::Host::kFrozen) copy_frozen_contents(storage);
  Memory& memory = memories_[storage];
  memory.host = Memory::Host::kNone;
  memory.empty_tensor = at::Tensor();
  // Memory the graph does not own: recording must leave it as it was.
  if (memory.is_foreign && !memory.is_saved && tensor.has_storage()) {
    memory.is_saved = true;
    foreign_.save(memory_view(tensor));
  }
}

// Known memory, unknown geometry: a view made behind the dispatcher (variable_data, set_data).
ValueId Recorder::rebuild_view(const at::Tensor& tensor, StorageId storage) {
  remark("a view was made behind the dispatcher; as_strided stands for it");
  auto base = static_cast<ValueId>(trace_.values.size());
  while (base-- > 0) {
    const Value& value = trace_.values[base];
    if (value.storage == storage && value.storage_bytes >= 0 &&
        value.options.dtype() == tensor.dtype()) {
      break;
    }
  }
  TP_CHECK(base >= 0 && !tensor.is_conj() && !tensor.is_neg(), "record",
           "a tensor of shape [{}]{} shares memory with another of a different type, behind the "
           "dispatcher. Use Tensor::view(dtype), or run with SessionOptions{{.executor = "
           "ExecutorKind::kEager}}.",
           fmt::join(tensor.sizes(), ", "), in_scope());
  static const auto as_strided =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::as_strided", "");
  Node node{.op = as_strided, .keys = {}};
  node.arguments.resize(4);
  node.arguments[0] = {Argument::Kind::kTensor, {base}, {}};
  node.arguments[1].literal = tensor.sizes().vec();
  node.arguments[2].literal = tensor.strides().vec();
  node.arguments[3].literal = tensor.storage_offset();
  node.is_view = true;
  node.reads = {storage};
  const ValueId id =
      add_value(tensor, ValueKind::kComputed, static_cast<int32_t>(trace_.nodes.size()));
  node.results = {{{id}, false}};
  push_node(std::move(node), false, {});
  return id;
}

// Arguments that are not tensors are repeated as they are.
void Recorder::check_literal(const c10::IValue& value, const Node& node) {
  TP_CHECK(!value.isStorage(), "record",
           "{}{} takes raw memory, which a recorded program cannot tell from that of later runs. "
           "Pass a tensor, or run with SessionOptions{{.executor = ExecutorKind::kEager}}.",
           node.op_name(), in_scope());
  if (value.isGenerator()) before_draw(value.toGenerator());
}

// What it draws while recording is put back. Therefore it is saved before the first draw, of
// operators that are given it and of those that are lent its state alike.
void Recorder::before_draw(const at::Generator& generator) {
  if (std::find(generators_.begin(), generators_.end(), generator) != generators_.end()) return;
  generators_.push_back(generator);
  foreign_.save(generator);
}

Recorder::Pending Recorder::before(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                                   const torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string& name = op.operator_name().name;
  const size_t count = schema.arguments().size();
  const std::vector<int>& undeclared = undeclared_writes(name, torch::jit::last(stack, count));
  const bool ignores = ignores_contents(name);

  Pending pending{Node{.op = op, .keys = below}, {}};
  Node& node = pending.node;
  node.grad_mode = c10::GradMode::is_enabled();
  node.is_random = draws_random_numbers(op);
  if (node.is_random && !generator_argument(op)) node.generator = DrawFrom::current();
  if (node.generator.defined()) before_draw(node.generator);
  node.is_collective = is_collective(op);
  node.changes_metadata = changes_metadata(op);
  node.scope = scopes_.current();
  bool has_tensor = false;
  bool has_mask = false;

  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    const c10::AliasInfo* alias = schema.arguments()[i].alias_info();
    const bool writes = (alias != nullptr && alias->isWrite()) || contains(undeclared, i);
    Argument argument;
    auto take = [&](const at::Tensor& tensor) -> ValueId {
      if (!tensor.defined()) return kNoValue;
      has_tensor = true;
      // The first write to fresh memory initialises it; a pure view does not look at contents.
      const bool reads_contents = !writes && alias == nullptr && !ignores;
      const ValueId id = use(tensor, reads_contents);
      const bool overwrites =
          overwrites_first_argument(name) ? i == 0 : schema.arguments()[i].kwarg_only();
      if (check_undeclared_writes_ && !writes) {
        pending.checksums.emplace_back(tensor, checksum(tensor));
      }
      const StorageId storage = trace_.values[id].storage;
      node.reads.push_back(storage);
      if (writes) {
        node.writes.push_back(storage);
        before_write(tensor, storage, overwrites);
      }
      return id;
    };
    if (value.isTensor() && value.toTensor().defined()) {
      argument = {Argument::Kind::kTensor, {take(value.toTensor())}, {}};
    } else if (value.isTensorList()) {
      argument.kind = Argument::Kind::kTensorList;
      for (const at::Tensor& tensor : value.toTensorVector()) argument.ids.push_back(take(tensor));
    } else if (value.isOptionalTensorList()) {
      argument.kind = Argument::Kind::kOptionalTensorList;
      for (const c10::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        argument.ids.push_back(tensor.has_value() ? take(*tensor) : kNoValue);
        has_mask |= tensor.has_value() && tensor->defined() &&
                    (tensor->scalar_type() == at::kBool || tensor->scalar_type() == at::kByte);
      }
    } else {
      check_literal(value, node);
      argument.literal = value;
    }
    node.arguments.push_back(std::move(argument));
  }
  if (has_tensor) {
    if (auto reason = reason_not_recordable(op, has_mask)) {
      throw make_error("record", "{}{}{} {}.", node.op_name(), called_by(op), in_scope(), *reason);
    }
  }
  return pending;
}

ValueId Recorder::result(const at::Tensor& tensor, const Node& node, int32_t index, bool& is_new,
                         bool& has_fresh_memory) {
  if (!tensor.defined()) return kNoValue;
  const bool known_memory = memory_ids_.contains(memory_of(tensor));
  auto found = ids_.find(key_of(tensor));
  // In-place results and views that change nothing are the value they alias.
  if (known_memory && found != ids_.end() && !node.changes_metadata) return found->second;
  is_new = true;
  has_fresh_memory |= !known_memory;
  return add_value(tensor, ValueKind::kComputed, index);
}

void Recorder::after(Pending pending, const torch::jit::Stack& stack) {
  Node& node = pending.node;
  const std::string& name = node.op.operator_name().name;
  const size_t count = node.op.schema().returns().size();
  const auto index = static_cast<int32_t>(trace_.nodes.size());
  for (const auto& [tensor, sum] : pending.checksums) {
    const bool announced =
        std::find(node.writes.begin(), node.writes.end(), memory_id(tensor)) != node.writes.end();
    if (!announced && checksum(tensor) != sum) {
      remark("undeclared write by " + node.op_name());
    }
  }
  bool is_new = false;
  bool has_fresh_memory = false;
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    Result result_ids;
    if (keep_results_) copy_tensors(value, copies);
    if (value.isTensor()) {
      result_ids.ids.push_back(result(value.toTensor(), node, index, is_new, has_fresh_memory));
    } else if (value.isTensorList()) {
      result_ids.is_list = true;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        result_ids.ids.push_back(result(tensor, node, index, is_new, has_fresh_memory));
      }
    }
    node.results.push_back(std::move(result_ids));
  }
  const bool writes_nothing = node.writes.empty() && count > 0;
  node.is_view = writes_nothing && !has_fresh_memory;
  if (has_fresh_memory && count == 1 && writes_nothing && leaves_result_uninitialised(name) &&
      node.results[0].ids.size() == 1) {
    Memory& memory = memories_[trace_.values[node.results[0].ids[0]].storage];
    memory.host = Memory::Host::kUntouched;
    memory.empty_node = index;
    memory.empty_tensor = stack.back().toTensor();
  }
  if (leaves_result_uninitialised(name)) copies.clear();  // nothing to compare
  // detach(), an expand() to the same shape, a read of metadata: nothing to repeat.
  const bool does_nothing = !is_new && writes_nothing && !node.is_random;
  push_node(std::move(node), does_nothing, std::move(copies));
}

void Recorder::push_node(Node node, bool dropped, std::vector<at::Tensor> results) {
  trace_.nodes.push_back(std::move(node));
  dropped_.push_back(dropped ? 1 : 0);
  if (keep_results_) results_.push_back(std::move(results));
}

// set_() to the memory of a known tensor, as cuDNN's recurrent layers do to see their weights as
// one piece: nothing is computed, and where the result is used as_strided() stands for it.
bool Recorder::is_set_to_known_memory(const c10::OperatorHandle& op,
                                      const torch::jit::Stack& stack) const {
  if (op.operator_name().name != "aten::set_") return false;
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  return arguments.size() > 1 && arguments[1].isStorage() &&
         memory_ids_.contains(arguments[1].toStorage().unsafeGetStorageImpl());
}

void Recorder::run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                   torch::jit::Stack* stack) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (is_set_to_known_memory(op, *stack)) return pass_on(op, below, stack);
  }
  Pending pending = [&] {
    std::lock_guard<std::mutex> lock(mutex_);
    return before(op, below, *stack);
  }();
  pass_on(op, below, stack);
  std::lock_guard<std::mutex> lock(mutex_);
  after(std::move(pending), *stack);
}

void Recorder::add_output(const std::string& name, const at::Tensor& tensor) {
  std::lock_guard<std::mutex> lock(mutex_);
  trace_.outputs[name] = use(tensor, /*reads_contents=*/true);
}

void Recorder::finish(Recording& recording) {
  for (const auto& [name, tensor] : recording.outputs) add_output(name, tensor);
  trace_.erase_nodes(dropped_);
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!dropped_[i]) recording.results.push_back(std::move(results_[i]));
  }
  recording.trace = std::move(trace_);
  recording.foreign = std::move(foreign_);
  recording.remarks = std::move(remarks_);
}

}  // namespace

Recording record(const RecordOptions& options) {
  GradientScopes scopes;
  auto recorder = std::make_shared<Recorder>(options, scopes);
  TP_ASSERT(options.inputs.size() == options.input_names.size());
  for (size_t i = 0; i < options.inputs.size(); ++i) {
    recorder->add_external(options.inputs[i], ValueKind::kInput, options.input_names[i]);
  }
  for (const auto& [name, tensor] : options.variables) {
    recorder->add_external(tensor, ValueKind::kVariable, name);
  }
  at::autocast::clear_cache();  // casts of weights made in an earlier call would become constants
  Recording recording;
  try {
    const WatchScope watch(recorder);
    const CalledFunctions functions;
    const KeptLayerOutputs kept(options.kept_layer_outputs,
                                [&](const std::string& name, const at::Tensor& tensor) {
                                  if (options.is_output && options.is_output(name))
                                    recorder->add_output(name, tensor);
                                });
    recording.outputs = options.function();
  } catch (...) {
    recorder->restore_foreign_state();
    throw;
  }
  recorder->restore_foreign_state();
  recorder->finish(recording);
  // Their history would keep every result of the forward pass alive.
  for (auto& [name, tensor] : recording.outputs) tensor = tensor.detach();
  return recording;
}

}  // namespace tensorpack
