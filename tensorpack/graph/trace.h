// SPDX-License-Identifier: Apache-2.0
// A recorded run: every operator below autograd, in order, with what it read and made.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Index into Trace::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an undefined tensor

/// A number for each piece of memory: values with the same storage alias each other.
using StorageId = int32_t;

enum class ValueKind : uint8_t {
  kInput,     // bound at every run
  kVariable,  // a variable of the graph, by reference
  kConstant,  // a tensor no recorded operator made, or a folded result, by reference
  kComputed,  // made by a node
};

struct Value {
  ValueKind kind = ValueKind::kComputed;
  StorageId storage = -1;
  int32_t producer = -1;   // the node, if computed
  at::Tensor tensor = {};  // variables and constants
  std::string name = {};   // inputs and variables

  // Geometry as recorded, for plans and dumps.
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};
  at::TensorOptions options = {};
  int64_t storage_bytes = -1;  // -1: not a plain strided tensor

  /// A constant whose contents others may change between runs. See Note [Captured tensors].
  bool varies = false;
  /// Of variables and constants: leaves that autograd gives a gradient.
  bool requires_grad = false;

  bool is_persistent() const {
    return kind == ValueKind::kVariable || kind == ValueKind::kConstant;
  }
};

struct Argument {
  enum class Kind : uint8_t { kLiteral, kTensor, kTensorList, kOptionalTensorList };
  Kind kind = Kind::kLiteral;
  std::vector<ValueId> ids = {};  // one for a tensor; kNoValue inside lists for undefined ones
  c10::IValue literal = {};
};

/// Whether both are the same number, list or text; NaN is NaN.
bool is_same_literal(const c10::IValue& a, const c10::IValue& b);

struct Result {
  std::vector<ValueId> ids = {};
  bool is_list = false;
};

/// "aten::add.Tensor".
std::string name_of(const c10::OperatorHandle& op);

/// For messages: " in scope 'conv0'", or nothing outside all scopes.
std::string in_scope(const std::string& path);

struct Node {
  c10::OperatorHandle op;
  c10::DispatchKeySet keys;  // what was left to dispatch to below the recorder
  std::vector<Argument> arguments = {};
  std::vector<Result> results = {};
  std::vector<StorageId> reads = {};
  std::vector<StorageId> writes = {};
  bool is_view = false;           // every result aliases an argument and nothing is written
  bool is_random = false;         // draws from a generator
  bool is_collective = false;     // all towers run it, or none
  bool changes_metadata = false;  // of its first argument: t_(), resize_(), set_()
  bool grad_mode = false;         // as it was at the call: some kernels look at it
  std::string scope = {};
  at::Generator generator = {};  // of a random operator that cannot be given one: lent its state

  std::string op_name() const { return name_of(op); }

  template <typename Visit>
  void for_each_argument(Visit visit) const {
    for (const Argument& argument : arguments) {
      for (ValueId id : argument.ids) {
        if (id != kNoValue) visit(id);
      }
    }
  }
  template <typename Visit>
  void for_each_result(Visit visit) const {
    for (const Result& result : results) {
      for (ValueId id : result.ids) {
        if (id != kNoValue) visit(id);
      }
    }
  }
};

/// The flat list. Nodes are in execution order; each value has one producer at most.
struct Trace {
  std::vector<Value> values = {};
  std::vector<Node> nodes = {};
  std::vector<ValueId> inputs = {};             // in the order of the op's inputs
  std::map<std::string, ValueId> outputs = {};  // the tensors that were named

  /// Removes the nodes for which `remove[i]` is set and renumbers producers.
  void erase_nodes(const std::vector<char>& remove);
};

}  // namespace tensorpack
