// SPDX-License-Identifier: Apache-2.0
// The persistent tensors of a graph, by name.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// What a variable is for, which decides who updates it and whether it is saved.
enum class VariableRole {
  kTrainable,  ///< changed by gradients; saved
  kModel,      ///< needed at inference but not trained by gradients (moving averages); saved
  kGlobal,     ///< training state: optimizer slots, learning rate, step counter; saved
  kLocal,      ///< statistics; never saved
};

/// A named tensor that lives as long as its graph. Write it in place: recorded programs refer to
/// its memory, and an op that uses a variable with other memory is prepared again before its next
/// run.
struct Variable {
  std::string name = {};
  const at::Tensor tensor = {};
  VariableRole role = VariableRole::kTrainable;
  /// What the name begins with if this is a tower's own copy of a variable: "tower1/".
  std::string tower_prefix = {};
  /// The copies that other towers have of this one.
  std::vector<Variable*> replicas = {};
  /// Whose it is, if it belongs to one optimizer alone.
  const void* owner = nullptr;

  /// The name that the copies of all towers have in common.
  std::string tower_free_name() const { return name.substr(tower_prefix.size()); }
  /// Whether another tower's variable is the one that counts.
  bool is_replica() const { return !tower_prefix.empty(); }
  bool is_trainable() const { return role == VariableRole::kTrainable; }
  /// Replicas are trained like the variable they copy, but not saved.
  bool is_saved() const { return role != VariableRole::kLocal && !is_replica(); }
  /// Copies `value` into the variable and into its replicas; throws an Error if shapes differ, and
  /// in a callback that runs in the chief process alone while others train, too.
  void assign(const at::Tensor& value) const;
};

/// Variables in the order they were created. References stay valid.
class VariableStore {
 public:
  VariableStore();
  ~VariableStore();
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;

  /// nullptr when there is none.
  Variable* find(std::string_view name);
  const Variable* find(std::string_view name) const;
  /// The variable whose memory the tensor is in, or nullptr.
  const Variable* owner_of(const at::Tensor& tensor) const;
  /// All variables in the storage that the tensor is in: there may be several, as those of a module
  /// after libtorch's vector_to_parameters().
  std::vector<const Variable*> in_storage_of(const at::Tensor& tensor) const;
  /// Throws an Error with the nearest known names when there is none.
  Variable& at(std::string_view name);

  std::deque<Variable>& all() { return variables_; }
  const std::deque<Variable>& all() const { return variables_; }
  /// Trainable variables of one tower (by default those that are no replicas) whose tower-free name
  /// contains a match of the regular expression.
  std::vector<Variable*> trainable(const std::string& regex = "",
                                   const std::string& tower_prefix = "");
  /// Every (name, tensor) whose name contains a match of the regular expression.
  std::vector<std::pair<std::string, at::Tensor>> items(const std::string& regex = "");
  std::vector<std::string> names() const;
  size_t size() const { return variables_.size(); }

  /// Looks for variables that were given other memory, as by torch::load() or set_data(), so that
  /// owner_of() knows it.
  void find_moved();

 private:
  friend class Graph;  // which knows whether it is final
  Variable& add(Variable variable);

  std::deque<Variable> variables_;
  struct Index;
  detail::Pimpl<Index> index_;
};

}  // namespace tensorpack
