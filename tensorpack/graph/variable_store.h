// SPDX-License-Identifier: Apache-2.0
// The persistent tensors of a graph, by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tensorpack {

/// What a variable is for, which decides who updates it and whether it is saved.
enum class VariableRole {
  kTrainable,  ///< changed by gradients; saved
  kModel,      ///< needed at inference but not trained by gradients (moving averages); saved
  kGlobal,     ///< training state: optimizer slots, learning rate, step counter; saved
  kLocal,      ///< statistics and replicas; never saved
};

/// A named tensor that lives as long as its graph. It is written in place, never replaced, because
/// recorded programs refer to its memory.
struct Variable {
  std::string name = {};
  at::Tensor tensor = {};
  VariableRole role = VariableRole::kTrainable;

  bool is_trainable() const { return role == VariableRole::kTrainable; }
  bool is_saved() const { return role != VariableRole::kLocal; }
  /// Copies `value` into the variable; throws an Error if shapes differ.
  void assign(const at::Tensor& value) const;
};

/// Variables in the order they were created. References stay valid.
class VariableStore {
 public:
  VariableStore() = default;
  VariableStore(const VariableStore&) = delete;
  VariableStore& operator=(const VariableStore&) = delete;

  Variable& add(Variable variable);
  /// nullptr when there is none.
  Variable* find(std::string_view name);
  const Variable* find(std::string_view name) const;
  /// Throws an Error with the nearest known names when there is none.
  Variable& at(std::string_view name);

  std::deque<Variable>& all() { return variables_; }
  const std::deque<Variable>& all() const { return variables_; }
  std::vector<Variable*> trainable();
  /// Trainable variables whose name contains a match of the regular expression.
  std::vector<Variable*> trainable(const std::string& regex);
  /// Every (name, tensor) whose name contains a match of the regular expression.
  std::vector<std::pair<std::string, at::Tensor>> items(const std::string& regex = "");
  std::vector<std::string> names() const;
  size_t size() const { return variables_.size(); }

 private:
  std::deque<Variable> variables_;
  std::unordered_map<std::string_view, Variable*> by_name_;  // keys point into variables_
};

}  // namespace tensorpack
