// SPDX-License-Identifier: Apache-2.0
// One call of a model function.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/op.h"
#include "tensorpack/graph/variable_store.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

class Graph;

/// Lists that layers and helpers add to during a call.
enum class Collection { kRegularizationLosses, kMovingSummaries, kSummaries, kFrozenVariables };

/// Whose variables the optimizers of a call update.
enum class VariableUpdates {
  kOwn,     ///< those of the tower
  kShared,  ///< those of all towers
  kNone,    ///< another tower does it for all
};

struct CallOptions {
  c10::Device device = c10::kCPU;
  /// False in a tower that shares the variables of an earlier one.
  bool may_create_trainable = true;
  /// Put before variable names: replicas keep theirs apart ("tower1/").
  std::string variable_prefix = {};
  /// Whether the call predicts: it may have been restored from a checkpoint.
  bool is_prediction = false;
  /// Whether gradients are averaged with other towers or processes (see graph/exchange.h).
  bool exchanges = false;
  /// How much of them is exchanged at a time.
  int64_t bucket_bytes = kDefaultBucketBytes;
  VariableUpdates updates = VariableUpdates::kOwn;
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

  Graph& graph() const { return graph_; }
  const CallOptions& options() const { return options_; }

  /// The tensors this call named, by tower-free name.
  const NamedTensors& named_tensors() const { return named_; }
  /// Throws an Error with the nearest names when this call named no such tensor.
  const at::Tensor& tensor(const std::string& name) const;
  /// The newest name under which this call knows `tensor`, or "".
  std::string name_of(const at::Tensor& tensor) const;

  /// What this call added to a list, as (name, tensor), in order.
  using CollectionItems = std::vector<std::pair<std::string, at::Tensor>>;
  const CollectionItems& collection(Collection key) const;
  void add_to_collection(Collection key, std::string name, at::Tensor tensor);
  /// Puts the tensor in the place of what was added under that name.
  void replace_in_collection(Collection key, std::string_view name, at::Tensor tensor);

  /// The trainable variables of the tower whose tower-free names contain a match of the regular
  /// expression; throws an Error when there is none.
  std::vector<Variable*> trainable(const std::string& regex = "");

  /// Notes that this call uses the variable `path`. Throws an Error for a second use where the
  /// scope does not allow it.
  void use_variable(const std::string& path);

  /// A number for the next exchange of this call.
  int64_t next_exchange() { return exchanges_++; }

 private:
  friend at::Tensor named(const std::string& name, at::Tensor tensor);
  friend at::Tensor layer_output(at::Tensor tensor);
  friend at::Tensor get_variable(const std::string&, at::IntArrayRef, struct VariableOptions);

  std::string new_name(const std::string& name);

  Graph& graph_;
  CallOptions options_;
  NamedTensors named_;
  struct Notes;
  detail::Pimpl<Notes> notes_;
  int64_t exchanges_ = 0;
};

/// Gives a tensor a public name, under which callbacks, inference and monitors find it, and returns
/// it. The name is prefixed by the current variable scope. Does nothing outside a call.
at::Tensor named(const std::string& name, at::Tensor tensor);

/// As named("output", tensor), for layers: see KeptLayerOutputs.
at::Tensor layer_output(at::Tensor tensor);

/// Every layer names its output. To keep them all until the end of the call would keep memory that
/// the model itself gives back early. While this lives, calls on this thread keep those in `names`
/// alone; `observer` is shown each.
class [[nodiscard]] KeptLayerOutputs {
 public:
  using Observer = std::function<void(const std::string& name, const at::Tensor& tensor)>;
  explicit KeptLayerOutputs(std::set<std::string> names, Observer observer = {});
  ~KeptLayerOutputs();
  KeptLayerOutputs(const KeptLayerOutputs&) = delete;
  KeptLayerOutputs& operator=(const KeptLayerOutputs&) = delete;

 private:
  friend at::Tensor layer_output(at::Tensor tensor);
  std::set<std::string> names_;
  Observer observer_;
  KeptLayerOutputs* outer_;
};

/// Collects what CallScope::tensor() is asked for on this thread while it lives.
class [[nodiscard]] LookupLog {
 public:
  LookupLog();
  ~LookupLog();
  LookupLog(const LookupLog&) = delete;
  LookupLog& operator=(const LookupLog&) = delete;

  const std::set<std::string>& names() const { return names_; }

 private:
  friend class CallScope;
  std::set<std::string> names_;
  LookupLog* outer_;
};

}  // namespace tensorpack
