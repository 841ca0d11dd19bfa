// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/program.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include <optional>
#include <unordered_map>

#include "tensorpack/graph/failure_place.h"
#include "tensorpack/graph/random_stream.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

bool is_out_form_of(const c10::FunctionSchema& candidate, const c10::FunctionSchema& functional) {
  const auto& arguments = candidate.arguments();
  const auto& expected = functional.arguments();
  if (arguments.size() != expected.size() + functional.returns().size()) return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* alias = arguments[i].alias_info();
    const bool writes = alias != nullptr && alias->isWrite();
    if (i < expected.size()) {
      if (writes || arguments[i].name() != expected[i].name() ||
          *arguments[i].type() != *expected[i].type()) {
        return false;
      }
    } else if (!writes || arguments[i].type()->kind() != c10::TypeKind::TensorType) {
      return false;
    }
  }
  return true;
}

// The memory a plain tensor of this geometry needs.
int64_t bytes_of(const Value& value) {
  int64_t last = 0;
  for (size_t i = 0; i < value.sizes.size(); ++i) {
    if (value.sizes[i] == 0) return 0;
    last += (value.sizes[i] - 1) * value.strides[i];
  }
  return (last + 1) * static_cast<int64_t>(value.options.dtype().itemsize());
}

// The out= form of a functional operator, if it has a real one: generated ones compute first and
// copy afterwards.
std::optional<c10::OperatorHandle> out_form_of(const Node& node) {
  using Names = std::unordered_map<std::string, std::vector<c10::OperatorName>>;
  static const Names by_name = [] {
    Names names;
    for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
      names[name.name].push_back(name);
    }
    return names;
  }();
  // Losses compute every element into `out` before they reduce it: it would grow and shrink.
  if (node.op.operator_name().name.ends_with("_loss")) return std::nullopt;
  auto found = by_name.find(node.op.operator_name().name);
  if (found == by_name.end() || node.keys.empty()) return std::nullopt;
  for (const c10::OperatorName& name : found->second) {
    auto candidate = c10::Dispatcher::singleton().findSchema(name);
    if (!candidate || candidate->hasTag(at::Tag::generated)) continue;
    if (!candidate->hasComputedKernelForDispatchKey(node.keys.highestPriorityTypeId())) continue;
    if (is_out_form_of(candidate->schema(), node.op.schema())) return *candidate;
  }
  return std::nullopt;
}

}  // namespace

Program::Program(const Trace& trace, const std::vector<std::string>& fetches,
                 ProgramOptions options)
    : slots_(trace.values.size()), kept_(trace.values.size(), 0), fetched_(trace.values.size(), 0) {
  for (const std::string& name : fetches) {
    auto found = trace.outputs.find(name);
    TP_ASSERT(found != trace.outputs.end());
    fetch_ids_.push_back(found->second);
    fetched_[found->second] = 1;
  }
  for (ValueId id : trace.inputs) {
    const Value& value = trace.values[id];
    inputs_.push_back({id, value.sizes, value.strides, value.options});
  }
  for (size_t i = 0; i < trace.values.size(); ++i) {
    if (!trace.values[i].is_persistent()) continue;
    slots_[i] = trace.values[i].tensor;
    kept_[i] = 1;
  }
  c10::InferenceMode inference_mode;
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    if (!add_step_into_kept_buffers(trace, trace.nodes[i], index, options)) {
      add_step(trace, trace.nodes[i], index);
    }
  }
  find_last_uses(trace);
}

void Program::add_step(const Trace& trace, const Node& node, int32_t index) {
  Step step{.op = node.op,
            .keys = node.keys,
            .push_begin = static_cast<uint32_t>(pushes_.size()),
            .push_end = 0,
            .pop_begin = static_cast<uint32_t>(pops_.size()),
            .pop_end = 0,
            .release_begin = 0,
            .release_end = 0,
            .changes_metadata = node.changes_metadata,
            .grad_mode = node.grad_mode,
            .generator = -1};
  if (node.generator.defined()) {
    step.generator = static_cast<int32_t>(generators_.size());
    generators_.push_back(node.generator);
  }
  for (const Argument& argument : node.arguments) {
    Push push{argument.kind, false, -1};
    if (argument.kind == Argument::Kind::kLiteral) {
      push.index = static_cast<int32_t>(literals_.size());
      literals_.push_back(argument.literal);
    } else if (argument.kind == Argument::Kind::kTensor) {
      push.index = argument.ids[0];
    } else {
      push.index = static_cast<int32_t>(lists_.size());
      lists_.push_back({argument.ids, std::vector<char>(argument.ids.size(), 0)});
    }
    pushes_.push_back(push);
  }
  step.push_end = static_cast<uint32_t>(pushes_.size());
  // A result that is one of the arguments keeps its slot.
  auto is_made_here = [&](ValueId id) {
    return id != kNoValue && trace.values[id].producer == index && !kept_[id];
  };
  for (const Result& result : node.results) {
    Pop pop{Pop::Kind::kIgnore, -1};
    if (result.is_list) {
      pop = {Pop::Kind::kList, static_cast<int32_t>(lists_.size())};
      List list{result.ids, {}};
      for (ValueId& id : list.ids) {
        if (!is_made_here(id)) id = kNoValue;
      }
      lists_.push_back(std::move(list));
    } else if (!result.ids.empty() && is_made_here(result.ids[0])) {
      pop = {Pop::Kind::kTensor, result.ids[0]};
    }
    pops_.push_back(pop);
  }
  step.pop_end = static_cast<uint32_t>(pops_.size());
  steps_.push_back(step);
  scopes_.push_back(node.scope);
}

bool Program::add_step_into_kept_buffers(const Trace& trace, const Node& node, int32_t index,
                                         const ProgramOptions& options) {
  if (!node.writes.empty() || node.is_random || node.is_view || node.results.empty()) return false;
  int64_t bytes = 0;
  for (const Result& result : node.results) {
    if (result.is_list || result.ids.empty() || result.ids[0] == kNoValue) return false;
    const Value& value = trace.values[result.ids[0]];
    if (value.producer != index || value.storage_bytes > options.largest_kept_buffer ||
        value.storage_bytes != bytes_of(value)) {
      return false;
    }
    bytes += value.storage_bytes;
  }
  if (kept_bytes_ + bytes > options.kept_buffers_budget) return false;
  auto out_form = out_form_of(node);
  if (!out_form) return false;
  kept_bytes_ += bytes;
  Node into = node;
  into.op = *out_form;
  for (const Result& result : node.results) {
    const ValueId id = result.ids[0];
    const Value& value = trace.values[id];
    slots_[id] = at::empty_strided(value.sizes, value.strides, value.options);
    kept_[id] = 1;
    into.arguments.push_back({Argument::Kind::kTensor, {id}, {}});
  }
  add_step(trace, into, index);
  return true;
}

// Backwards, so that the first time a value is met is its last use.
void Program::find_last_uses(const Trace& trace) {
  std::vector<char> needed(trace.values.size(), 0);
  for (size_t i = 0; i < needed.size(); ++i) needed[i] = kept_[i] || fetched_[i];
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    step->release_begin = static_cast<uint32_t>(releases_.size());
    for (uint32_t i = step->pop_begin; i < step->pop_end; ++i) {
      Pop& pop = pops_[i];
      if (pop.kind == Pop::Kind::kTensor && !needed[pop.index]) pop.kind = Pop::Kind::kIgnore;
      if (pop.kind != Pop::Kind::kList) continue;
      for (ValueId id : lists_[pop.index].ids) {
        if (id != kNoValue && !needed[id]) releases_.push_back(id);
      }
    }
    step->release_end = static_cast<uint32_t>(releases_.size());
    for (uint32_t i = step->push_end; i-- > step->push_begin;) {
      Push& push = pushes_[i];
      if (push.kind == Argument::Kind::kLiteral) continue;
      if (push.kind == Argument::Kind::kTensor) {
        push.move = !needed[push.index];
        needed[push.index] = 1;
        continue;
      }
      List& list = lists_[push.index];
      for (size_t j = list.ids.size(); j-- > 0;) {
        if (list.ids[j] == kNoValue) continue;
        list.move[j] = !needed[list.ids[j]];
        needed[list.ids[j]] = 1;
      }
    }
  }
}

at::Tensor Program::take(ValueId id, bool move) {
  return move ? std::move(slots_[id]).toTensor() : slots_[id].toTensor();
}

void Program::push_argument(const Push& push) {
  switch (push.kind) {
    case Argument::Kind::kTensor:
      if (push.move) {
        stack_.emplace_back(std::move(slots_[push.index]));
      } else {
        stack_.emplace_back(slots_[push.index]);
      }
      return;
    case Argument::Kind::kLiteral:
      stack_.emplace_back(literals_[push.index]);
      return;
    case Argument::Kind::kTensorList: {
      const List& list = lists_[push.index];
      c10::List<at::Tensor> tensors;
      tensors.reserve(list.ids.size());
      for (size_t i = 0; i < list.ids.size(); ++i) {
        tensors.push_back(list.ids[i] == kNoValue ? at::Tensor() : take(list.ids[i], list.move[i]));
      }
      stack_.emplace_back(std::move(tensors));
      return;
    }
    case Argument::Kind::kOptionalTensorList: {
      const List& list = lists_[push.index];
      c10::List<c10::optional<at::Tensor>> tensors;
      tensors.reserve(list.ids.size());
      for (size_t i = 0; i < list.ids.size(); ++i) {
        tensors.push_back(list.ids[i] == kNoValue
                              ? c10::optional<at::Tensor>()
                              : c10::optional<at::Tensor>(take(list.ids[i], list.move[i])));
      }
      stack_.emplace_back(std::move(tensors));
      return;
    }
  }
}

void Program::call(const Step& step) {
  std::optional<LendState> lent;
  if (step.generator >= 0) lent.emplace(generators_[step.generator]);
  if (step.keys.empty()) {
    step.op.callBoxed(&stack_);
  } else {
    step.op.redispatchBoxed(step.keys, &stack_);
  }
}

void Program::execute(const Step& step) {
  stack_.clear();
  for (uint32_t i = step.push_begin; i < step.push_end; ++i) push_argument(pushes_[i]);
  if (c10::GradMode::is_enabled() != step.grad_mode) c10::GradMode::set_enabled(step.grad_mode);
  if (step.changes_metadata) stack_[0] = at::alias(stack_[0].toTensor());
  call(step);
  for (uint32_t i = step.pop_begin, k = 0; i < step.pop_end; ++i, ++k) {
    const Pop& pop = pops_[i];
    if (pop.kind == Pop::Kind::kTensor) {
      slots_[pop.index] = std::move(stack_[k]);
    } else if (pop.kind == Pop::Kind::kList) {
      std::vector<at::Tensor> tensors = stack_[k].toTensorVector();
      const List& list = lists_[pop.index];
      for (size_t j = 0; j < list.ids.size(); ++j) {
        if (list.ids[j] != kNoValue) slots_[list.ids[j]] = std::move(tensors[j]);
      }
    }
  }
  for (uint32_t i = step.release_begin; i < step.release_end; ++i) {
    slots_[releases_[i]] = c10::IValue();
  }
}

std::string Program::current_op() const {
  return position_ < steps_.size() ? name_of(steps_[position_].op) : "";
}

std::vector<at::Tensor> Program::run(const std::vector<at::Tensor>& inputs) {
  TP_ASSERT(inputs.size() == inputs_.size());
  c10::InferenceMode inference_mode;
  c10::AutoGradMode grad_mode(false);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs_[i];
    TP_ASSERT(inputs[i].sizes() == input.sizes);
    // Kernels were chosen for the recorded layout.
    slots_[input.id] =
        inputs[i].strides() == input.strides
            ? inputs[i]
            : at::empty_strided(input.sizes, input.strides, input.options).copy_(inputs[i]);
  }
  try {
    for (position_ = 0; position_ < steps_.size(); ++position_) execute(steps_[position_]);
  } catch (...) {
    FailurePlace::note_operator(current_op(), scopes_[position_]);
    throw;
  }
  stack_.clear();
  std::vector<at::Tensor> values;
  values.reserve(fetch_ids_.size());
  for (ValueId id : fetch_ids_) values.push_back(slots_[id].toTensor());
  // Fetched values and unused inputs must not outlive the run in their slots.
  for (ValueId id : fetch_ids_) {
    if (!kept_[id]) slots_[id] = c10::IValue();
  }
  for (const Input& input : inputs_) slots_[input.id] = c10::IValue();
  return values;
}

}  // namespace tensorpack
