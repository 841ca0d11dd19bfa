// SPDX-License-Identifier: Apache-2.0
// The tensors and variables of a tower that was built, by tower-free names.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/op.h"

namespace tensorpack {

/// One call of a tower function. Names never carry the tower's own name.
class TowerHandle {
 public:
  TowerHandle(Graph& graph, std::string name, bool is_training, Op op,
              std::string variable_prefix = {});

  const std::string& name() const { return name_; }
  bool is_training() const { return is_training_; }
  /// The op whose evaluation computes the tower.
  const Op& op() const { return op_; }

  /// A named tensor, an input, or a variable: an input wins over a tensor of the same name. Throws
  /// an Error with the nearest names otherwise.
  TensorRef get_tensor(const std::string& name) const;
  TensorRef operator[](const std::string& name) const { return get_tensor(name); }
  /// Throws that error, said to come from `where`, unless get_tensor() would find `name`.
  void check_tensor(const std::string& name, const std::string& where) const;
  std::vector<TensorRef> get_tensors(const std::vector<std::string>& names) const;
  /// The tower's own, if it has one of that name; throws an Error with the nearest names otherwise.
  Variable& get_variable(const std::string& name) const;

 private:
  Variable* find_variable(const std::string& name) const;

  Graph* graph_;
  std::string name_;
  bool is_training_;
  Op op_;
  std::string variable_prefix_;
};

/// Every tower built so far, in the order of the calls.
class TowerHandles {
 public:
  const TowerHandle& add(TowerHandle handle);
  size_t size() const { return handles_.size(); }
  bool empty() const { return handles_.empty(); }
  const TowerHandle& operator[](size_t index) const;
  /// By tower name; throws an Error listing the names there are.
  const TowerHandle& operator[](const std::string& name) const;
  bool contains(const std::string& name) const;
  TowerHandles training() const;
  TowerHandles inference() const;
  auto begin() const { return handles_.begin(); }
  auto end() const { return handles_.end(); }

 private:
  std::vector<TowerHandle> handles_;
};

}  // namespace tensorpack
