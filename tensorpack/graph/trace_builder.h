// SPDX-License-Identifier: Apache-2.0
// The trace of a run in progress: which value each tensor stands for, and whose memory it is.
//
// Note [Memory filled by the host]
// Memory from empty() that is read before an operator wrote to it was filled through a pointer
// (torch::tensor({...}), accessors): its contents become a constant. If an operator writes to it
// after all, every run must start from a copy of its own, so clone() of the constant takes the
// place of the empty(). The same happens to memory from zeros(), ones() and the like, if it holds
// something else when an operator first looks at it.
#pragma once

#include <ATen/core/Generator.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tensorpack/graph/captured_tensor.h"
#include "tensorpack/graph/detail/saved_state.h"
#include "tensorpack/graph/tensor_key.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct Recording;

/// Is told of every operator before and after it runs, in order. Tensors are told apart by storage
/// and geometry, because autograd hands saved tensors back in new wrappers.
class TraceBuilder {
 public:
  explicit TraceBuilder(bool keep_results) : keep_results_(keep_results) {}

  /// An input or a variable.
  void add_external(const at::Tensor& tensor, ValueKind kind, const std::string& name);
  void add_output(const std::string& name, const at::Tensor& tensor);

  /// The value that an argument stands for.
  ValueId use(const at::Tensor& tensor, bool reads_contents);
  /// An operator is about to write to an argument, or to overwrite all of it.
  void before_write(const at::Tensor& tensor, StorageId storage, bool overwrites);
  /// An operator is about to draw from the generator.
  void before_draw(const at::Generator& generator);

  /// What a tensor that the next node returns stands for.
  struct ResultValue {
    ValueId id = kNoValue;
    bool is_new = false;            // not the value of an argument
    bool has_fresh_memory = false;  // not a view either
  };
  ResultValue result(const at::Tensor& tensor, bool may_be_argument);
  /// The next node returns memory with nothing in it yet. See Note [Memory filled by the host].
  void expect_host_contents(const at::Tensor& tensor, ValueId id);
  /// The next node returns memory that it has filled by itself, as zeros() does.
  void expect_changes_by_host(const at::Tensor& tensor, ValueId id);
  /// The next node. One that does nothing is left out in the end. `results` are copies of what it
  /// returned, to be kept.
  void push(Node node, bool does_nothing, std::vector<at::Tensor> results);

  StorageId storage_of(ValueId id) const { return trace_.values[id].storage; }
  /// The memory that the tensor lies in, which may be new.
  StorageId memory_id(const at::Tensor& tensor);
  bool knows_memory(const void* address) const { return memory_ids_.contains(address); }
  /// Whether what the memory of the tensor holds was computed from inputs.
  bool is_computed_from_inputs(const at::Tensor& tensor) const;

  /// Something unusual, for the debug log.
  void remark(std::string text);
  /// Puts back what was written to memory that the graph does not own, and what was drawn.
  void restore_foreign_state() const { foreign_.restore(); }
  /// Moves everything into the recording.
  void finish(Recording& recording);
  /// Finds out, in what was finished, which constants others own. See Note [Captured tensors].
  void find_captured(Recording& recording) const;

 private:
  // A piece of memory. The weak reference keeps the StorageImpl's address from being used again,
  // yet lets the memory go as in a normal run.
  struct Memory {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    at::Tensor without_storage = {};  // sparse and other opaque tensors
    enum class Host : uint8_t {
      kNone,
      kUntouched,  // made by empty(); no operator has written or read it yet
      kFilled,     // by zeros() and the like; the same
      kFrozen,     // read though no operator wrote it: a constant, its contents come from the host
    } host = Host::kNone;
    int32_t empty_node = -1;       // that empty() or zeros() ...
    at::Tensor empty_tensor = {};  // ... and what it returned
    at::Tensor filled_with = {};   // a copy of what zeros() has put there
    bool is_foreign = false;       // an input, or made by neither the graph nor an operator
    bool is_saved = false;         // foreign, and its contents are kept for restore
  };

  // A constant, and the tensor that the function used.
  struct Original {
    ValueId id;
    WeakTensor tensor;
    // Of memory that libtorch does not own, and that may be gone when the function has returned.
    at::Tensor contents = {};
  };

  int32_t next_node() const { return static_cast<int32_t>(trace_.nodes.size()); }
  ValueId add_value(const at::Tensor& tensor, ValueKind kind, int32_t producer);
  ValueId rebuild_view(const at::Tensor& tensor, StorageId storage);
  void refer_to(const at::Tensor& tensor, ValueId constant);
  void before_read(StorageId storage);
  void look_for_changes_by_host(StorageId storage);
  void freeze_host_contents(StorageId storage);
  void copy_frozen_contents(StorageId storage);

  const bool keep_results_;
  Trace trace_;
  std::vector<char> dropped_;  // nodes that turned out to do nothing
  std::vector<std::vector<at::Tensor>> results_;
  std::unordered_map<TensorKey, ValueId, TensorKeyHash> ids_;
  std::vector<Memory> memories_;
  std::unordered_map<const void*, StorageId> memory_ids_;
  std::vector<Original> originals_;
  SavedState foreign_;
  std::vector<at::Generator> generators_;
  std::vector<std::string> remarks_;
};

}  // namespace tensorpack
