// SPDX-License-Identifier: Apache-2.0
// Updates of whole lists of variables in one pass over memory. Each is an operator of the library
// `tensorpack`, so that it is one node of a recorded program. float32 on the CPU has a kernel of
// its own, CUDA works on all variables at a time (cuda/update_kernels.cpp); everything else is
// composed of libtorch's operators, variable by variable.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::kernels {

struct MomentumNumbers {
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

/// One step of stochastic gradient descent. `velocities` is empty without momentum; `lr` is 0-d.
void sgd_(const std::vector<at::Tensor>& variables, const std::vector<at::Tensor>& velocities,
          const std::vector<at::Tensor>& gradients, const at::Tensor& lr, MomentumNumbers numbers);

struct AdamNumbers {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  bool decoupled = false;  ///< decay the weights themselves, as AdamW does
};

/// One step of Adam. `step` is the number of this step, from 1, a 0-d double.
void adam_(const std::vector<at::Tensor>& variables, const std::vector<at::Tensor>& m,
           const std::vector<at::Tensor>& v, const std::vector<at::Tensor>& gradients,
           const at::Tensor& lr, const at::Tensor& step, AdamNumbers numbers);

struct LAMBNumbers {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.01;
};

/// One step of LAMB; as adam_().
void lamb_(const std::vector<at::Tensor>& variables, const std::vector<at::Tensor>& m,
           const std::vector<at::Tensor>& v, const std::vector<at::Tensor>& gradients,
           const at::Tensor& lr, const at::Tensor& step, LAMBNumbers numbers);

struct RMSPropNumbers {
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0;
  double weight_decay = 0;
};

/// One step of RMSProp. `means` is empty unless it is centered, `velocities` without momentum.
void rmsprop_(const std::vector<at::Tensor>& variables, const std::vector<at::Tensor>& squares,
              const std::vector<at::Tensor>& means, const std::vector<at::Tensor>& velocities,
              const std::vector<at::Tensor>& gradients, const at::Tensor& lr,
              RMSPropNumbers numbers);

struct AdagradNumbers {
  double epsilon = 1e-10;
  double weight_decay = 0;
};

/// One step of Adagrad.
void adagrad_(const std::vector<at::Tensor>& variables, const std::vector<at::Tensor>& sums,
              const std::vector<at::Tensor>& gradients, const at::Tensor& lr,
              AdagradNumbers numbers);

/// Throws an Error that gives the first of `names` whose tensor has a NaN or an infinity.
void check_finite(const std::vector<at::Tensor>& tensors, const std::vector<std::string>& names);

}  // namespace tensorpack::kernels
