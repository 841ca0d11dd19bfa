// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/recorder.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/called_functions.h"
#include "tensorpack/graph/checksum.h"
#include "tensorpack/graph/gradient_scopes.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/random_stream.h"
#include "tensorpack/graph/trace_builder.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// For messages: " (called by aten::one_hot)", or nothing if the user called the operator itself.
std::string called_by(const c10::OperatorHandle& op) {
  const std::string caller = CalledFunctions::outermost();
  return caller.empty() || caller == op.operator_name().name ? "" : " (called by " + caller + ")";
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
        scopes_(scopes),
        trace_(options.keep_results) {}

  void add_external(const at::Tensor& tensor, ValueKind kind, const std::string& name) {
    trace_.add_external(tensor, kind, name);
  }
  void run(const c10::OperatorHandle& op, c10::DispatchKeySet below,
           torch::jit::Stack* stack) override;
  void add_output(const std::string& name, const at::Tensor& tensor);
  void finish(Recording& recording) { trace_.finish(recording); }
  void find_captured(Recording& recording) const { trace_.find_captured(recording); }
  void restore_foreign_state() const { trace_.restore_foreign_state(); }
  bool is_computed_from_inputs(const at::Tensor& tensor) const {
    const std::lock_guard lock(mutex_);
    return trace_.is_computed_from_inputs(tensor);
  }

 private:
  struct Pending {
    Node node;
    std::vector<std::pair<at::Tensor, uint64_t>> checksums;
  };

  bool is_set_to_known_memory(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const;
  Pending before(const c10::OperatorHandle& op, c10::DispatchKeySet below,
                 const torch::jit::Stack& stack);
  void after(Pending pending, const torch::jit::Stack& stack);
  void check_literal(const c10::IValue& value, const Node& node);
  void find_undeclared_writes(const Pending& pending);

  const bool check_undeclared_writes_;
  const bool keep_results_;
  GradientScopes& scopes_;
  mutable std::mutex mutex_;
  TraceBuilder trace_;
};

// While it lives, the recorder is that of this thread.
class [[nodiscard]] RecorderScope {
 public:
  explicit RecorderScope(Recorder& recorder) : outer_(std::exchange(current(), &recorder)) {}
  ~RecorderScope() { current() = outer_; }
  RecorderScope(const RecorderScope&) = delete;
  RecorderScope& operator=(const RecorderScope&) = delete;

  static Recorder*& current() {
    static thread_local Recorder* recorder = nullptr;
    return recorder;
  }

 private:
  Recorder* outer_;
};

// Arguments that are not tensors are repeated as they are.
void Recorder::check_literal(const c10::IValue& value, const Node& node) {
  TP_CHECK(!value.isStorage(), "record",
           "{}{} takes raw memory, which a recorded program cannot tell from that of later runs. "
           "Pass a tensor, or run with SessionOptions{{.executor = ExecutorKind::kEager}}.",
           node.op_name(), in_scope(VariableScope::current_path()));
  if (value.isGenerator()) trace_.before_draw(value.toGenerator());
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
  const std::optional<size_t> generator = generator_argument(op);
  const bool is_lent = !generator || stack[stack.size() - count + *generator].isNone();
  if (node.is_random && is_lent) node.generator = DrawFrom::current();
  if (node.generator.defined()) trace_.before_draw(node.generator);
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
      const ValueId id = trace_.use(tensor, reads_contents);
      const bool overwrites =
          overwrites_first_argument(name) ? i == 0 : schema.arguments()[i].kwarg_only();
      if (check_undeclared_writes_ && !writes) {
        pending.checksums.emplace_back(tensor, checksum(tensor));
      }
      const StorageId storage = trace_.storage_of(id);
      node.reads.push_back(storage);
      if (writes) {
        node.writes.push_back(storage);
        trace_.before_write(tensor, storage, overwrites);
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
      throw make_error("record", "{}{}{} {}.", node.op_name(), called_by(op),
                       in_scope(VariableScope::current_path()), *reason);
    }
  }
  return pending;
}

void Recorder::find_undeclared_writes(const Pending& pending) {
  const std::vector<StorageId>& writes = pending.node.writes;
  for (const auto& [tensor, sum] : pending.checksums) {
    const bool announced =
        std::find(writes.begin(), writes.end(), trace_.memory_id(tensor)) != writes.end();
    if (!announced && checksum(tensor) != sum) {
      trace_.remark("undeclared write by " + pending.node.op_name());
    }
  }
}

void Recorder::after(Pending pending, const torch::jit::Stack& stack) {
  find_undeclared_writes(pending);
  Node& node = pending.node;
  const size_t count = node.op.schema().returns().size();
  bool is_new = false;
  bool has_fresh_memory = false;
  const auto add_result = [&](const at::Tensor& tensor, Result& result) {
    const auto value = trace_.result(tensor, /*may_be_argument=*/!node.changes_metadata);
    is_new |= value.is_new;
    has_fresh_memory |= value.has_fresh_memory;
    result.ids.push_back(value.id);
  };
  std::vector<at::Tensor> copies;
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& value = stack[stack.size() - count + i];
    Result result;
    if (keep_results_) copy_tensors(value, copies);
    if (value.isTensor()) {
      add_result(value.toTensor(), result);
    } else if (value.isTensorList()) {
      result.is_list = true;
      for (const at::Tensor& tensor : value.toTensorVector()) add_result(tensor, result);
    }
    node.results.push_back(std::move(result));
  }
  const bool writes_nothing = node.writes.empty() && count > 0;
  node.is_view = writes_nothing && !has_fresh_memory;
  const std::string& name = node.op.operator_name().name;
  const bool makes_memory =
      has_fresh_memory && count == 1 && writes_nothing && node.results[0].ids.size() == 1;
  if (leaves_result_uninitialised(name)) {
    copies.clear();  // nothing to compare
    if (makes_memory) {
      trace_.expect_host_contents(stack.back().toTensor(), node.results[0].ids[0]);
    }
  } else if (makes_memory && !node.is_random && (node.reads.empty() || ignores_contents(name))) {
    trace_.expect_changes_by_host(stack.back().toTensor(), node.results[0].ids[0]);
  }
  // detach(), an expand() to the same shape, a read of metadata: nothing to repeat.
  const bool does_nothing = !is_new && writes_nothing && !node.is_random;
  trace_.push(std::move(node), does_nothing, std::move(copies));
}

// set_() to the memory of a known tensor, as cuDNN's recurrent layers do to see their weights as
// one piece: nothing is computed, and where the result is used as_strided() stands for it.
bool Recorder::is_set_to_known_memory(const c10::OperatorHandle& op,
                                      const torch::jit::Stack& stack) const {
  if (op.operator_name().name != "aten::set_") return false;
  const auto arguments = torch::jit::last(stack, op.schema().arguments().size());
  return arguments.size() > 1 && arguments[1].isStorage() &&
         trace_.knows_memory(arguments[1].toStorage().unsafeGetStorageImpl());
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
  trace_.add_output(name, tensor);
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
    const RecorderScope current(*recorder);
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
  recorder->find_captured(recording);  // when autograd holds nothing any more
  return recording;
}

bool is_recording() { return RecorderScope::current() != nullptr; }

std::optional<bool> is_computed_from_inputs(const at::Tensor& tensor) {
  const Recorder* recorder = RecorderScope::current();
  if (recorder == nullptr) return std::nullopt;
  return recorder->is_computed_from_inputs(tensor);
}

}  // namespace tensorpack
