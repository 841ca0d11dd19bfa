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
// to no memory of another device. The calls are noted. Where the function needs what they compute,
// they are made up for, and the storages get their contents, which neither tensors nor autograd
// notice: before an operator that is called with other shapes or numbers than before, from where on
// everything computes, and in the end if the function keeps a fake tensor, such as a mask that it
// makes once for each length. It must not find zeros there in a later call. Only for a function
// that looks at a result on the host, through a pointer or by printing it, it is too late. The
// system tells, as a page is put there then, and the function is called again and computes.
#pragma once

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/op.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// What the operators of a recording return.
class FakeResults {
 public:
  /// Refers to the trace.
  explicit FakeResults(const Trace& trace);

  class Memory;
  // Where a result comes from.
  struct Source {
    int32_t argument = -1;  // it is this argument ...
    int32_t position = 0;   // ... or this tensor of a list; otherwise a new tensor
    ValueId shape = kNoValue;
  };
  struct Call {
    const Node* node;
    std::vector<std::vector<Source>> results = {};
    int64_t bytes = 0;  // of the new tensors
  };

  /// The recorded call with such arguments, or nullptr.
  const Call* find_call(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) const;
  /// What it returns for these arguments. New tensors keep the memory.
  std::vector<c10::IValue> results_of(const Call& call, c10::ArrayRef<c10::IValue> arguments,
                                      const std::shared_ptr<Memory>& memory) const;
  /// Addresses for all results of one call of the function.
  std::shared_ptr<Memory> reserve() const;
  const Trace& trace() const { return trace_; }

 private:
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

struct FakeRecording {
  Recording recording = {};
  bool has_computed = false;  ///< the function called other operators, or keeps a result
};

/// Records the op's function as record_op() does, computing no more than it must. `guard` puts back
/// what was computed into variables. Nothing if the function throws, or has looked at a result on
/// the host, where it found zeros.
std::optional<FakeRecording> record_on_fake_results(Graph& graph, const Op& op,
                                                    const std::vector<at::Tensor>& inputs,
                                                    const FakeResults& results, StateGuard& guard);

}  // namespace tensorpack
