// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include <cmath>

#include "tensorpack/optim/kernels.h"
#include "tensorpack/optim/kernels/by_device.h"
#include "tensorpack/optim/kernels/chunks.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::kernels {
namespace {

void adam_composed(const Tensor& variable, const Tensor& m, const Tensor& v, Tensor gradient,
                   const Tensor& lr, const Tensor& step, const AdamNumbers& n) {
  const Tensor correction1 = 1 - at::pow(n.beta1, step);
  const Tensor correction2 = (1 - at::pow(n.beta2, step)).sqrt();
  if (n.decoupled) {
    variable.mul_(1 - lr * n.weight_decay);
  } else if (n.weight_decay != 0) {
    gradient = gradient.add(variable, n.weight_decay);
  }
  m.mul_(n.beta1).add_(gradient, 1 - n.beta1);
  v.mul_(n.beta2).addcmul_(gradient, gradient, 1 - n.beta2);
  const Tensor scale = v.sqrt().div_(correction2).add_(n.epsilon);
  variable.sub_(m.div(scale).mul_(lr.to(at::kDouble) / correction1));
}

void adam_any(TensorList variables, TensorList m, TensorList v, TensorList gradients,
              const Tensor& lr, const Tensor& step, double beta1, double beta2, double epsilon,
              double weight_decay, bool decoupled) {
  for (size_t i = 0; i < variables.size(); ++i) {
    adam_composed(variables[i], m[i], v[i], gradients[i], lr, step,
                  {beta1, beta2, epsilon, weight_decay, decoupled});
  }
}

void adam_cpu(TensorList variables, TensorList m, TensorList v, TensorList gradients,
              const Tensor& lr, const Tensor& step, double beta1, double beta2, double epsilon,
              double weight_decay, bool decoupled) {
  Chunks<4> chunks;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!chunks.add({variables[i], m[i], v[i], gradients[i]})) {
      adam_composed(variables[i], m[i], v[i], gradients[i], lr, step,
                    {beta1, beta2, epsilon, weight_decay, decoupled});
    }
  }
  const auto rate = lr.item<double>();
  const auto count = step.item<double>();
  const auto step_size = static_cast<float>(rate / (1 - std::pow(beta1, count)));
  const auto unbias = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count)));
  const auto keep1 = static_cast<float>(beta1), take1 = static_cast<float>(1 - beta1);
  const auto keep2 = static_cast<float>(beta2), take2 = static_cast<float>(1 - beta2);
  const auto tiny = static_cast<float>(epsilon);
  const auto decay = static_cast<float>(decoupled ? 0 : weight_decay);
  const auto shrink = static_cast<float>(decoupled ? 1 - rate * weight_decay : 1);
  chunks.for_each([=](const Chunk<4>& chunk) __attribute__((always_inline)) {
    float* __restrict w = chunk.data[0];
    float* __restrict first = chunk.data[1];
    float* __restrict second = chunk.data[2];
    const float* __restrict g = chunk.data[3];
    for (int64_t i = 0; i < chunk.size; ++i) {
      const float gradient = g[i] + decay * w[i];
      first[i] = keep1 * first[i] + take1 * gradient;
      second[i] = keep2 * second[i] + take2 * gradient * gradient;
      w[i] = shrink * w[i] - step_size * first[i] / (std::sqrt(second[i]) * unbias + tiny);
    }
  });
}

}  // namespace

void adam_(const std::vector<Tensor>& variables, const std::vector<Tensor>& m,
           const std::vector<Tensor>& v, const std::vector<Tensor>& gradients, const Tensor& lr,
           const Tensor& step, AdamNumbers numbers) {
  static const auto op = find_operator<decltype(adam_cpu)>("tensorpack::adam_");
  for_each_device(variables, [&](const OnDevice& here) {
    op.call(here.of(variables), here.of(m), here.of(v), here.of(gradients), here.of(lr),
            here.of(step), numbers.beta1, numbers.beta2, numbers.epsilon, numbers.weight_decay,
            numbers.decoupled);
  });
  count_writes(variables);
  count_writes(m);
  count_writes(v);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "adam_(Tensor(a!)[] variables, Tensor(b!)[] m, Tensor(c!)[] v, Tensor[] gradients, "
      "Tensor lr, Tensor step, float beta1, float beta2, float epsilon, float weight_decay, "
      "bool decoupled) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) { library.impl("adam_", adam_cpu); }

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("adam_", adam_any);
}

}  // namespace tensorpack::kernels
