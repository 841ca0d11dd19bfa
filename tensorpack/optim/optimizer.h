// SPDX-License-Identifier: Apache-2.0
// Gradients, and what is done with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/graph/initializer.h"
#include "tensorpack/graph/variable_store.h"
#include "tensorpack/utils/hyper_params.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// A variable and the derivative of a cost with respect to it.
struct Gradient {
  Variable* variable = nullptr;
  at::Tensor value = {};
  /// Of this tower alone: still to be averaged over the towers that train together.
  bool is_local = false;
};
using Gradients = std::vector<Gradient>;

/// The average of gradients over the towers that train together; see average_over_towers() for
/// `is_due`.
Gradients averaged(Gradients gradients, const at::Tensor& is_due = {});

std::vector<at::Tensor> variables_of(const Gradients& gradients);
std::vector<at::Tensor> values_of(const Gradients& gradients);

/// Turns gradients into updates. Everything it remembers between steps is a variable of the graph
/// (slots, step counts, the learning rate), so that its work can be recorded once and repeated, and
/// saved with the model.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Updates the variables in place, unless another tower does it for this one. Called inside a
  /// tower or CallScope, with gradients disabled.
  void apply_gradients(const Gradients& gradients);

  /// What minimize() differentiates in place of `cost`; only LossScaleOptimizer changes it.
  virtual at::Tensor scale_cost(const at::Tensor& cost) { return cost; }

  /// Whether update() averages gradients over towers itself, where these are `is_local`.
  virtual bool averages_gradients() const { return false; }

  /// Its name and its options, for reports: {"optimizer", "SGD"}, {"lr", "0.1"}.
  virtual HyperParams hyper_params() const { return {}; }

 protected:
  /// What an optimizer is: updates the variables in place.
  virtual void update(const Gradients& gradients) = 0;

  /// The variable `<variable>/<slot>`: of the variable's shape, made at first use, zeros when
  /// `init` is empty.
  static at::Tensor get_slot(const Variable& variable, const std::string& slot,
                             Initializer init = {});
  /// get_slot() of every variable.
  static std::vector<at::Tensor> get_slots(const Gradients& gradients, const std::string& slot,
                                           const Initializer& init = {});
  /// The scalar variable `<scope>/<name>`, or `name` in no scope; on `device`, if that is given.
  /// Throws an Error when another optimizer of the graph has it: the two would share a learning
  /// rate, or count each other's steps.
  at::Tensor own_scalar(const std::string& scope, const std::string& name, double first_value,
                        c10::ScalarType dtype = c10::kFloat,
                        std::optional<c10::Device> device = {}) const;
  /// Variables of an update, and how often they were updated together.
  struct Counted {
    at::Tensor count = {};
    Gradients gradients = {};
  };
  /// own_scalar() `name`, from 0 on, for update() to count in. An optimizer that updates several
  /// sets of variables, as of a generator and a discriminator, has a counter for each set:
  /// `<name>_1` is that of the second. So each variable's updates are counted, and no others.
  std::vector<Counted> counted(const std::string& scope, const std::string& name,
                               const Gradients& gradients, c10::ScalarType dtype = c10::kDouble,
                               std::optional<c10::Device> device = {}) const;
};

/// The derivatives of a scalar cost, averaged over the towers that train together. Variables it
/// does not depend on are left out, with one warning that names them; throws an Error when none is
/// left. Several costs of one forward pass can be differentiated, before the first update; the last
/// of them needs no `keep_history`, and saves memory without.
Gradients compute_gradients(const at::Tensor& cost, const std::vector<Variable*>& variables,
                            bool keep_history = true);

/// compute_gradients() and apply_gradients(). The forward pass cannot be differentiated again.
void minimize(Optimizer& optimizer, const at::Tensor& cost,
              const std::vector<Variable*>& variables);
/// The same for the trainable variables of the tower at hand whose names contain a match of the
/// regular expression.
void minimize(Optimizer& optimizer, const at::Tensor& cost, const std::string& regex = "");

}  // namespace tensorpack
