// SPDX-License-Identifier: Apache-2.0
// Updates that write copies of the new variables, too. On CUDA they are in cuda/update_kernels.cpp;
// elsewhere the copies are made after the update.
#include <torch/library.h>

#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/update.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::cuda {
namespace {

using at::Tensor;
using at::TensorList;

void sgd_then_copies(TensorList variables, TensorList velocities, TensorList gradients,
                     const Tensor& lr, double momentum, bool nesterov, double weight_decay,
                     TensorList copies, at::IntArrayRef places) {
  using Update = void(TensorList, TensorList, TensorList, const Tensor&, double, bool, double);
  static const auto update = find_operator<Update>("tensorpack::sgd_");
  update.call(variables, velocities, gradients, lr, momentum, nesterov, weight_decay);
  CopiesOfVariables{copies, places}.write(variables);
}

void adam_then_copies(TensorList variables, TensorList m, TensorList v, TensorList gradients,
                      const Tensor& lr, const Tensor& step, double beta1, double beta2,
                      double epsilon, double weight_decay, bool decoupled, TensorList copies,
                      at::IntArrayRef places) {
  using Update = void(TensorList, TensorList, TensorList, TensorList, const Tensor&, const Tensor&,
                      double, double, double, double, bool);
  static const auto update = find_operator<Update>("tensorpack::adam_");
  update.call(variables, m, v, gradients, lr, step, beta1, beta2, epsilon, weight_decay, decoupled);
  CopiesOfVariables{copies, places}.write(variables);
}

}  // namespace

c10::OperatorHandle adam_and_copies_operator() {
  return find_operator("tensorpack::adam_and_copies_");
}
c10::OperatorHandle sgd_and_copies_operator() {
  return find_operator("tensorpack::sgd_and_copies_");
}

// The arguments of sgd_ and adam_, then copies and the places of their variables.
TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "sgd_and_copies_(Tensor(a!)[] variables, Tensor(b!)[] velocities, Tensor[] gradients, "
      "Tensor lr, float momentum, bool nesterov, float weight_decay, Tensor(c!)[] copies, "
      "int[] places) -> ()");
  library.def(
      "adam_and_copies_(Tensor(a!)[] variables, Tensor(b!)[] m, Tensor(c!)[] v, "
      "Tensor[] gradients, Tensor lr, Tensor step, float beta1, float beta2, float epsilon, "
      "float weight_decay, bool decoupled, Tensor(d!)[] copies, int[] places) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("sgd_and_copies_", sgd_then_copies);
  library.impl("adam_and_copies_", adam_then_copies);
}

}  // namespace tensorpack::cuda
