// SPDX-License-Identifier: Apache-2.0
// Updates of many variables in one kernel. See Note [Tables of tensors]. Gradients are read in the
// type they have.
#pragma once

#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// What an update reads and writes, one of each for every variable.
struct UpdateTensors {
  std::vector<at::Tensor> variables = {};
  std::vector<at::Tensor> gradients = {};
  /// As many as the optimizer has for each variable; an empty one is not used.
  std::vector<std::vector<at::Tensor>> slots = {};
  /// Of the new variables, in 16 bits; undefined for those without, empty if none has one.
  std::vector<at::Tensor> copies = {};
};

/// Copies of some variables, by their places among all.
struct CopiesOfVariables {
  at::TensorList copies = {};
  at::IntArrayRef places = {};

  /// One for each of `variables` variables, as UpdateTensors has them.
  std::vector<at::Tensor> of_each(size_t variables) const;
  /// By libtorch's operators, after an update without them.
  void write(at::TensorList variables) const;
};

/// True if the kernels can do it: float variables, gradients laid out as they are, copies of one
/// type.
bool fits_update(const UpdateTensors& tensors, const at::Tensor& lr);

struct SgdUpdate {
  double momentum = 0;  ///< 0: there are no velocities
  bool nesterov = false;
  double weight_decay = 0;
};
void sgd_update(const UpdateTensors& tensors, const at::Tensor& lr, const SgdUpdate& options,
                const Launcher& launcher);

struct AdamUpdate {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  ///< the decay of the weights is no part of the gradient
};
/// `step` counts from 1.
void adam_update(const UpdateTensors& tensors, const at::Tensor& lr, const at::Tensor& step,
                 const AdamUpdate& options, const Launcher& launcher);

}  // namespace tensorpack::cuda
