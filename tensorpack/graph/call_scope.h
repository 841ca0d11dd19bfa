// SPDX-License-Identifier: Apache-2.0
// One call of a model function.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "tensorpack/graph/op.h"
#include "tensorpack/graph/variable_store.h"

namespace tensorpack {

class Graph;

/// Lists that layers and helpers add to during a call.
enum class Collection { kRegularizationLosses, kMovingSummaries, kSummaries };

struct CallOptions {
  c10::Device device = c10::kCPU;
  /// False in a tower that shares the variables of an earlier one.
  bool may_create_trainable = true;
  /// Put before variable names: replicas keep theirs apart ("tower1/").
  std::string variable_prefix = {};
};

/// While it lives, get_variable(), named() and every layer called on this thread belong to one call
/// of a function on `graph`. Calls do not nest.
class [[nodiscard]] CallScope {
 public:
  explicit CallScope(Graph& graph, CallOptions options = {});
  ~CallScope();
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

  /// The call in progress on this thread, or nullptr.
  static CallScope* current();
  /// Throws an Error that says `where` when no call is in progress.
  static CallScope& current_or_throw(const char* where);

  Graph& graph() { return graph_; }
  const CallOptions& options() const { return options_; }

  /// The tensors this call named, by tower-free name.
  const NamedTensors& named_tensors() const { return named_; }
  /// Throws an Error with the nearest names when this call named no such tensor.
  const at::Tensor& tensor(const std::string& name) const;
  /// The name under which this call knows `tensor`, or "".
  std::string name_of(const at::Tensor& tensor) const;

  /// What this call added to a list, as (name, tensor), in order.
  using CollectionItems = std::vector<std::pair<std::string, at::Tensor>>;
  const CollectionItems& collection(Collection key) const;
  void add_to_collection(Collection key, std::string name, at::Tensor tensor);

 private:
  friend at::Tensor named(const std::string& name, at::Tensor tensor);
  friend at::Tensor get_variable(const std::string&, at::IntArrayRef, struct VariableOptions);

  Graph& graph_;
  CallOptions options_;
  NamedTensors named_;
  std::map<Collection, CollectionItems> collections_;
  std::unordered_set<std::string> used_variables_;
};

/// Gives a tensor a public name, under which callbacks, inference and monitors find it, and returns
/// it. The name is prefixed by the current variable scope. Does nothing outside a call.
at::Tensor named(const std::string& name, at::Tensor tensor);

}  // namespace tensorpack
