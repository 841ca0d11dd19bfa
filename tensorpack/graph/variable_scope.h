// SPDX-License-Identifier: Apache-2.0
// Named variables from plain functions.
//
//   VariableScope scope("discrim", Reuse::kAuto);
//   Tensor w = get_variable("W", {64, 3, 4, 4}, init::normal(0.02));   // "discrim/W"
#pragma once

#include <c10/util/ArrayRef.h>

#include <concepts>
#include <optional>
#include <string>
#include <utility>

#include "tensorpack/graph/initializer.h"
#include "tensorpack/graph/variable_store.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Whether a name that was already used in the current call may be used again.
enum class Reuse {
  kInherit,  ///< as in the enclosing scope
  kNone,     ///< a second use is an error: it would share weights by accident
  kReuse,    ///< the variable must exist
  kAuto,     ///< made by the first use, shared by later ones
};

/// Puts `name/` before every variable made on this thread while it lives. Scopes nest, and close in
/// reverse order.
class [[nodiscard]] VariableScope {
 public:
  explicit VariableScope(const std::string& name, Reuse reuse = Reuse::kInherit);
  /// The scope it stands in, which may be the root, with another reuse.
  explicit VariableScope(Reuse reuse);
  ~VariableScope();
  VariableScope(const VariableScope&) = delete;
  VariableScope& operator=(const VariableScope&) = delete;

  /// "gen/deconv1", or "" outside any scope.
  static const std::string& current_path();
  static Reuse current_reuse();
  /// `name` under the current path.
  static std::string path_of(const std::string& name);

 private:
  size_t outer_length_;
  Reuse outer_reuse_;
};

struct VariableOptions {
  /// When empty, a trainable variable of two dimensions or more draws from init::xavier_uniform()
  /// (Glorot), as in TensorFlow; every other one begins with zeros.
  Initializer init = {};
  VariableRole role = VariableRole::kTrainable;
  c10::ScalarType dtype = c10::kFloat;
  std::optional<c10::Device> device = {};  ///< that of the current call when empty
  /// Keeps a 4-d tensor in channels_last memory format, unless the graph has given that up.
  bool channels_last = false;
};

/// The variable `name` in the current scope: made by the first call of the model function, found by
/// every later one. Needs a TowerContext or a CallScope on this thread. Throws an Error when the
/// rules of a tower function are broken: a second use of the name without Reuse, a shape or type
/// that differs from the stored one, the reserved word "tower", a new name in a graph that is
/// final.
///
/// In a call on another device than the variable's it returns a copy there, made by every run: it
/// has the value of the moment and passes gradients on, but what is written to it is lost.
at::Tensor get_variable(const std::string& name, at::IntArrayRef shape,
                        VariableOptions options = {});
/// A template, because clang 14 does not compile `{.dtype = ...}` where an overload takes a
/// std::function.
template <std::convertible_to<Initializer> Init>
at::Tensor get_variable(const std::string& name, at::IntArrayRef shape, Init init) {
  return get_variable(name, shape, VariableOptions{.init = std::move(init)});
}

/// A 0-d variable that is not trained by gradients, such as a learning rate. Always in the root
/// scope, shared by all who ask for it in towers with the same variables, and on the device of who
/// asked first: never a copy, for what counts steps is written.
at::Tensor get_scalar_variable(const std::string& name, double first_value,
                               c10::ScalarType dtype = c10::kFloat);

/// The number of steps made so far, an int64 of no dimensions, as the step at hand begins: what a
/// function makes of it changes from step to step. It is a variable in the memory of the host: on
/// CUDA a step that reads it is replayed, not captured.
at::Tensor get_global_step();

}  // namespace tensorpack
