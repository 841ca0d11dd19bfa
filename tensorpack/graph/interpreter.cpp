// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/interpreter.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>

#include "tensorpack/graph/random_stream.h"

namespace tensorpack {
namespace {

c10::IValue argument_value(const Argument& argument, const std::vector<c10::IValue>& slots) {
  switch (argument.kind) {
    case Argument::Kind::kLiteral:
      return argument.literal;
    case Argument::Kind::kTensor:
      return slots[argument.ids[0]];
    case Argument::Kind::kTensorList: {
      c10::List<at::Tensor> list;
      for (ValueId id : argument.ids) {
        list.push_back(id == kNoValue ? at::Tensor() : slots[id].toTensor());
      }
      return list;
    }
    case Argument::Kind::kOptionalTensorList: {
      c10::List<c10::optional<at::Tensor>> list;
      for (ValueId id : argument.ids) {
        list.push_back(id == kNoValue ? c10::optional<at::Tensor>() : slots[id].toTensor());
      }
      return list;
    }
  }
  return {};
}

}  // namespace

std::vector<c10::IValue> make_slots(const Trace& trace, const std::vector<at::Tensor>& inputs) {
  std::vector<c10::IValue> slots(trace.values.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    if (trace.values[i].is_persistent()) slots[i] = trace.values[i].tensor;
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    slots[static_cast<size_t>(trace.inputs[i])] = inputs[i];
  }
  return slots;
}

void run_node(const Node& node, std::vector<c10::IValue>& slots) {
  c10::InferenceMode inference_mode;
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  c10::AutoGradMode grad_mode(node.grad_mode);
  torch::jit::Stack stack;
  for (const Argument& argument : node.arguments) stack.push_back(argument_value(argument, slots));
  // t_() and the like change the tensor they are given: give them one of their own.
  if (node.changes_metadata) stack[0] = at::alias(stack[0].toTensor());
  std::optional<LendState> lent;
  if (node.generator.defined()) lent.emplace(node.generator);
  if (node.keys.empty()) {
    node.op.callBoxed(&stack);
  } else {
    node.op.redispatchBoxed(node.keys, &stack);
  }
  for (size_t i = 0; i < node.results.size(); ++i) {
    const Result& result = node.results[i];
    if (result.is_list) {
      const std::vector<at::Tensor> tensors = stack[i].toTensorVector();
      for (size_t j = 0; j < result.ids.size(); ++j) {
        if (result.ids[j] != kNoValue) slots[result.ids[j]] = tensors[j];
      }
    } else if (!result.ids.empty() && result.ids[0] != kNoValue) {
      slots[result.ids[0]] = std::move(stack[i]);
    }
  }
}

}  // namespace tensorpack
