// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/trace_builder.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <unordered_set>
#include <utility>

#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack {
namespace {

// All of the memory that `tensor` is a part of.
at::Tensor memory_view(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(tensor.storage().nbytes() / tensor.itemsize());
  return tensor.detach().as_strided({count}, {1}, 0);
}

// With all of the memory, so that the geometry is the same.
at::Tensor copy_of(const at::Tensor& tensor) {
  at::NoGradGuard no_grad;
  return memory_view(tensor).clone().as_strided(tensor.sizes(), tensor.strides(),
                                                tensor.storage_offset());
}

}  // namespace

void TraceBuilder::add_external(const at::Tensor& tensor, ValueKind kind, const std::string& name) {
  const ValueId id = add_value(tensor, kind, -1);
  trace_.values[id].name = name;
  if (kind == ValueKind::kInput) {
    trace_.inputs.push_back(id);
    memories_[trace_.values[id].storage].is_foreign = true;
  } else {
    trace_.values[id].tensor = tensor.detach();
    trace_.values[id].requires_grad = tensor.requires_grad();
  }
}

void TraceBuilder::add_output(const std::string& name, const at::Tensor& tensor) {
  trace_.outputs[name] = use(tensor, /*reads_contents=*/true);
}

ValueId TraceBuilder::use(const at::Tensor& tensor, bool reads_contents) {
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
  refer_to(tensor, id);
  memories_[trace_.values[id].storage].is_foreign = true;
  return id;
}

void TraceBuilder::before_write(const at::Tensor& tensor, StorageId storage, bool overwrites) {
  look_for_changes_by_host(storage);
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

// What it draws while recording is put back.
void TraceBuilder::before_draw(const at::Generator& generator) {
  if (std::find(generators_.begin(), generators_.end(), generator) != generators_.end()) return;
  generators_.push_back(generator);
  foreign_.save(generator);
}

TraceBuilder::ResultValue TraceBuilder::result(const at::Tensor& tensor, bool may_be_argument) {
  if (!tensor.defined()) return {};
  const bool known_memory = knows_memory(memory_of(tensor));
  const auto found = ids_.find(key_of(tensor));
  // In-place results and views that change nothing are the value they alias.
  if (known_memory && found != ids_.end() && may_be_argument) return {.id = found->second};
  return {.id = add_value(tensor, ValueKind::kComputed, next_node()),
          .is_new = true,
          .has_fresh_memory = !known_memory};
}

void TraceBuilder::expect_host_contents(const at::Tensor& tensor, ValueId id) {
  Memory& memory = memories_[storage_of(id)];
  memory.host = Memory::Host::kUntouched;
  memory.empty_node = next_node();
  memory.empty_tensor = tensor;
}

void TraceBuilder::expect_changes_by_host(const at::Tensor& tensor, ValueId id) {
  constexpr size_t kMostBytes = 1 << 20;  // nobody fills more one by one
  if (!tensor.is_cpu() || tensor.layout() != at::kStrided || tensor.nbytes() > kMostBytes) return;
  if (tensor.storage().allocator() == nullptr) return;  // a fake tensor: it holds nothing
  Memory& memory = memories_[storage_of(id)];
  memory.host = Memory::Host::kFilled;
  memory.empty_node = next_node();
  memory.filled_with = memory_view(tensor).clone();
}

void TraceBuilder::push(Node node, bool does_nothing, std::vector<at::Tensor> results) {
  trace_.nodes.push_back(std::move(node));
  dropped_.push_back(does_nothing ? 1 : 0);
  if (keep_results_) results_.push_back(std::move(results));
}

bool TraceBuilder::is_computed_from_inputs(const at::Tensor& tensor) const {
  const auto found = memory_ids_.find(memory_of(tensor));
  if (found == memory_ids_.end()) return false;
  std::vector<char> is_reached(memories_.size(), 0);
  for (const ValueId input : trace_.inputs) is_reached[storage_of(input)] = 1;
  for (const Node& node : trace_.nodes) {
    const bool reads = std::any_of(node.reads.begin(), node.reads.end(),
                                   [&](StorageId storage) { return is_reached[storage] != 0; });
    if (!reads) continue;
    for (const StorageId storage : node.writes) is_reached[storage] = 1;
    for (const Result& result : node.results) {
      for (const ValueId id : result.ids) {
        if (id != kNoValue) is_reached[storage_of(id)] = 1;
      }
    }
  }
  return is_reached[found->second] != 0;
}

StorageId TraceBuilder::memory_id(const at::Tensor& tensor) {
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

void TraceBuilder::remark(std::string text) {
  if (std::find(remarks_.begin(), remarks_.end(), text) == remarks_.end()) {
    remarks_.push_back(std::move(text));
  }
}

void TraceBuilder::finish(Recording& recording) {
  for (const auto& [name, tensor] : recording.outputs) add_output(name, tensor);
  trace_.erase_nodes(dropped_);
  for (size_t i = 0; i < results_.size(); ++i) {
    if (!dropped_[i]) recording.results.push_back(std::move(results_[i]));
  }
  recording.trace = std::move(trace_);
  recording.foreign = std::move(foreign_);
  recording.remarks = std::move(remarks_);
  memories_.clear();
}

void TraceBuilder::find_captured(Recording& recording) const {
  std::vector<at::Tensor> own = recording.foreign.tensors();
  for (const auto& [name, tensor] : recording.outputs) own.push_back(tensor);
  for (const Value& value : recording.trace.values) {
    if (value.tensor.defined() && value.tensor.has_storage()) own.push_back(value.tensor);
  }
  const OwnedMemory memory(own);
  std::unordered_set<StorageId> written;
  for (const Node& node : recording.trace.nodes) {
    written.insert(node.writes.begin(), node.writes.end());
  }
  for (const Original& original : originals_) {
    Value& value = recording.trace.values[original.id];
    if (value.kind != ValueKind::kConstant || is_wrapped_number(value.tensor)) continue;
    const int64_t own_handles = is_handle(original.tensor, value.tensor) ? 1 : 0;
    const bool is_held = handles(original.tensor) > own_handles;
    value.varies = is_held || memory.has_other_owner(value.tensor);
    if (is_held) recording.captured.emplace_back(original.tensor, value.requires_grad);
    const bool is_gone = !value.varies && !written.contains(value.storage);
    if (is_gone && original.contents.defined()) value.tensor = original.contents;
  }
}

// By a tensor of the trace's own, unless it is more than its memory. Then others are noticed that
// give theirs up.
void TraceBuilder::refer_to(const at::Tensor& tensor, ValueId constant) {
  Value& value = trace_.values[constant];
  const bool is_plain = tensor.has_storage() && tensor.layout() == at::kStrided;
  value.tensor = is_plain && !is_wrapped_number(tensor) ? tensor.variable_data() : tensor;
  value.requires_grad = tensor.is_leaf() && tensor.requires_grad();
  Original& original = originals_.emplace_back(Original{constant, weak(tensor)});
  if (is_plain && tensor.storage().allocator() == nullptr) original.contents = copy_of(tensor);
}

ValueId TraceBuilder::add_value(const at::Tensor& tensor, ValueKind kind, int32_t producer) {
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

// Known memory, unknown geometry: a view made behind the dispatcher (variable_data, set_data).
ValueId TraceBuilder::rebuild_view(const at::Tensor& tensor, StorageId storage) {
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
           fmt::join(tensor.sizes(), ", "), in_scope(VariableScope::current_path()));
  static const auto as_strided = find_operator("aten::as_strided");
  Node node{.op = as_strided, .keys = {}};
  node.arguments.resize(4);
  node.arguments[0] = {Argument::Kind::kTensor, {base}, {}};
  node.arguments[1].literal = tensor.sizes().vec();
  node.arguments[2].literal = tensor.strides().vec();
  node.arguments[3].literal = tensor.storage_offset();
  node.is_view = true;
  node.reads = {storage};
  const ValueId id = add_value(tensor, ValueKind::kComputed, next_node());
  node.results = {{{id}, false}};
  push(std::move(node), /*does_nothing=*/false, {});
  return id;
}

// Before an operator looks at memory from zeros() for the first time.
void TraceBuilder::look_for_changes_by_host(StorageId storage) {
  Memory& memory = memories_[storage];
  if (memory.host != Memory::Host::kFilled) return;
  const at::Storage contents(memory.storage.lock());
  const at::Tensor before = std::exchange(memory.filled_with, {});
  memory.host = Memory::Host::kNone;
  if (std::memcmp(contents.data(), before.data_ptr(), before.nbytes()) == 0) return;
  const Value& value = trace_.values[trace_.nodes[memory.empty_node].results[0].ids[0]];
  memory.host = Memory::Host::kUntouched;
  memory.empty_tensor = at::empty({0}, value.options).set_(contents, 0, value.sizes, value.strides);
}

void TraceBuilder::before_read(StorageId storage) {
  look_for_changes_by_host(storage);
  if (memories_[storage].host == Memory::Host::kUntouched) freeze_host_contents(storage);
}

void TraceBuilder::freeze_host_contents(StorageId storage) {
  Memory& memory = memories_[storage];
  dropped_[memory.empty_node] = 1;
  Value& value = trace_.values[trace_.nodes[memory.empty_node].results[0].ids[0]];
  value.kind = ValueKind::kConstant;
  value.producer = -1;
  refer_to(memory.empty_tensor, trace_.nodes[memory.empty_node].results[0].ids[0]);
  memory.host = Memory::Host::kFrozen;
  remark("memory filled by host code is frozen as a constant");
}

void TraceBuilder::copy_frozen_contents(StorageId storage) {
  static const auto clone = find_operator("aten::clone");
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

}  // namespace tensorpack
