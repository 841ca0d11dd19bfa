// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include "tensorpack/optim/kernels.h"
#include "tensorpack/optim/kernels/by_device.h"
#include "tensorpack/optim/kernels/chunks.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::kernels {
namespace {

void sgd_composed(const Tensor& variable, const Tensor& velocity, Tensor step, const Tensor& lr,
                  const MomentumNumbers& n) {
  if (n.weight_decay != 0) step = step.add(variable, n.weight_decay);
  if (n.momentum != 0) {
    velocity.mul_(n.momentum).add_(step);
    step = n.nesterov ? step.add(velocity, n.momentum) : velocity;
  }
  variable.addcmul_(step, lr, -1);
}

void sgd_any(TensorList variables, TensorList velocities, TensorList gradients, const Tensor& lr,
             double momentum, bool nesterov, double weight_decay) {
  for (size_t i = 0; i < variables.size(); ++i) {
    sgd_composed(variables[i], momentum != 0 ? velocities[i] : Tensor(), gradients[i], lr,
                 {momentum, nesterov, weight_decay});
  }
}

void sgd_cpu(TensorList variables, TensorList velocities, TensorList gradients, const Tensor& lr,
             double momentum, bool nesterov, double weight_decay) {
  const float rate = lr.item<float>();
  const auto decay = static_cast<float>(weight_decay);
  const auto keep = static_cast<float>(momentum);
  Chunks<2> plain;
  Chunks<3> with_momentum;
  for (size_t i = 0; i < variables.size(); ++i) {
    const bool added = momentum == 0
                           ? plain.add({variables[i], gradients[i]})
                           : with_momentum.add({variables[i], velocities[i], gradients[i]});
    if (!added) {
      sgd_composed(variables[i], momentum != 0 ? velocities[i] : Tensor(), gradients[i], lr,
                   {momentum, nesterov, weight_decay});
    }
  }
  plain.for_each([=](const Chunk<2>& chunk) __attribute__((always_inline)) {
    float* __restrict w = chunk.data[0];
    const float* __restrict g = chunk.data[1];
    for (int64_t i = 0; i < chunk.size; ++i) w[i] -= rate * (g[i] + decay * w[i]);
  });
  // The look-ahead of Nesterov, as a factor so that one loop serves both.
  const float ahead = nesterov ? keep : 0.F;
  with_momentum.for_each([=](const Chunk<3>& chunk) __attribute__((always_inline)) {
    float* __restrict w = chunk.data[0];
    float* __restrict v = chunk.data[1];
    const float* __restrict g = chunk.data[2];
    if (nesterov) {
      for (int64_t i = 0; i < chunk.size; ++i) {
        const float step = g[i] + decay * w[i];
        v[i] = keep * v[i] + step;
        w[i] -= rate * (step + ahead * v[i]);
      }
    } else {
      for (int64_t i = 0; i < chunk.size; ++i) {
        v[i] = keep * v[i] + (g[i] + decay * w[i]);
        w[i] -= rate * v[i];
      }
    }
  });
}

}  // namespace

void sgd_(const std::vector<Tensor>& variables, const std::vector<Tensor>& velocities,
          const std::vector<Tensor>& gradients, const Tensor& lr, MomentumNumbers numbers) {
  static const auto op = find_operator<decltype(sgd_cpu)>("tensorpack::sgd_");
  for_each_device(variables, [&](const OnDevice& here) {
    op.call(here.of(variables), here.of(velocities), here.of(gradients), here.of(lr),
            numbers.momentum, numbers.nesterov, numbers.weight_decay);
  });
  count_writes(variables);
  count_writes(velocities);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "sgd_(Tensor(a!)[] variables, Tensor(b!)[] velocities, Tensor[] gradients, Tensor lr, "
      "float momentum, bool nesterov, float weight_decay) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) { library.impl("sgd_", sgd_cpu); }

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("sgd_", sgd_any);
}

}  // namespace tensorpack::kernels
