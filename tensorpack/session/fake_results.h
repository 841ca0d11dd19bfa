// SPDX-License-Identifier: Apache-2.0
// Recording a function for a second time without computing anything.
//
// Note [Fake results]
// What a recording consists of follows from the shapes of tensors, not from what they hold. The
// shapes that an operator returns follow from its numbers and from the shapes of its arguments, and
// the first recording has them. So operators that it knows return tensors of those shapes, into
// which nothing is computed: fake tensors, as PyTorch calls them. Views are real, and so is memory
// that the function may fill on the host. What is left of a comparison is the time of calling
// operators, a few per cent of a step, and no memory.
//
// Fake tensors lie at addresses that nobody ever writes to, which read as 0 on the CPU and belong
// to no memory of another device. A function that calls an operator with other shapes or numbers
// than before, or that keeps a fake tensor, is called again and computes.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/op.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// What the operators of a recording return.
class FakeResults {
 public:
  /// Refers to the trace.
  explicit FakeResults(const Trace& trace);

  /// Takes the arguments of the operator from the stack and returns true if they are those of a
  /// call that was recorded, whose results it then puts there. `memory` keeps their addresses.
  class Memory;
  bool replace_call(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                    const std::shared_ptr<Memory>& memory) const;
  /// Addresses for all results of one call of the function.
  std::shared_ptr<Memory> reserve() const;

 private:
  // Where a result comes from.
  struct Source {
    int32_t argument = -1;  // it is this argument ...
    int32_t position = 0;   // ... or this tensor of a list; otherwise a new tensor
    ValueId shape = kNoValue;
  };
  struct Call {
    const Node* node;
    std::vector<std::vector<Source>> results;
  };

  std::optional<Call> call_of(const Node& node) const;
  std::optional<Source> source_of(const Node& node, ValueId id) const;
  const Value& value(ValueId id) const { return trace_.values[static_cast<size_t>(id)]; }
  bool is_call_of(const Node& node, c10::ArrayRef<c10::IValue> arguments) const;
  bool has_shape_of(const at::Tensor& tensor, ValueId id) const;
  bool have_shapes_of(const c10::IValue& tensors, const Argument& argument) const;
  bool have_equal_shapes(const Node& a, const Node& b) const;

  const Trace& trace_;
  std::unordered_map<const void*, std::vector<Call>> calls_;  // by the schema of the operator
  int64_t bytes_ = 0;
};

/// Records the op's function as record_op() does. Nothing if it calls operators that the results
/// are not known of, or keeps one of them.
std::optional<Recording> record_on_fake_results(Graph& graph, const Op& op,
                                                const std::vector<at::Tensor>& inputs,
                                                const FakeResults& results);

}  // namespace tensorpack
