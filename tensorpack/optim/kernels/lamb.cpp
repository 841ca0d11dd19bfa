// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include <cmath>

#include "tensorpack/optim/kernels.h"
#include "tensorpack/optim/kernels/by_device.h"
#include "tensorpack/optim/kernels/chunks.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::kernels {
namespace {

void lamb_composed(const Tensor& variable, const Tensor& m, const Tensor& v, const Tensor& gradient,
                   const Tensor& lr, const Tensor& step, const LAMBNumbers& n) {
  const Tensor correction1 = 1 - at::pow(n.beta1, step);
  const Tensor correction2 = (1 - at::pow(n.beta2, step)).sqrt();
  m.mul_(n.beta1).add_(gradient, 1 - n.beta1);
  v.mul_(n.beta2).addcmul_(gradient, gradient, 1 - n.beta2);
  Tensor update = (m / correction1).div_((v.sqrt() / correction2).add_(n.epsilon));
  if (n.weight_decay != 0) update.add_(variable, n.weight_decay);
  const Tensor weight_norm = variable.norm();
  const Tensor update_norm = update.norm();
  const Tensor trust = at::where((weight_norm > 0).logical_and(update_norm > 0),
                                 weight_norm / update_norm, at::ones_like(weight_norm));
  variable.sub_(update.mul_(trust * lr));
}

void lamb_any(TensorList variables, TensorList m, TensorList v, TensorList gradients,
              const Tensor& lr, const Tensor& step, double beta1, double beta2, double epsilon,
              double weight_decay) {
  for (size_t i = 0; i < variables.size(); ++i) {
    lamb_composed(variables[i], m[i], v[i], gradients[i], lr, step,
                  {beta1, beta2, epsilon, weight_decay});
  }
}

// One pass computes the updates of all variables; then each is scaled to its variable.
void lamb_cpu(TensorList variables, TensorList m, TensorList v, TensorList gradients,
              const Tensor& lr, const Tensor& step, double beta1, double beta2, double epsilon,
              double weight_decay) {
  Chunks<5> chunks;
  std::vector<std::pair<Tensor, Tensor>> updates;  // (variable, its update)
  for (size_t i = 0; i < variables.size(); ++i) {
    const Tensor update = at::empty_like(variables[i]);
    if (chunks.add({variables[i], m[i], v[i], update, gradients[i]})) {
      updates.emplace_back(variables[i], update);
    } else {
      lamb_composed(variables[i], m[i], v[i], gradients[i], lr, step,
                    {beta1, beta2, epsilon, weight_decay});
    }
  }
  const auto count = step.item<double>();
  const auto unbias1 = static_cast<float>(1 / (1 - std::pow(beta1, count)));
  const auto unbias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, count)));
  const auto keep1 = static_cast<float>(beta1), take1 = static_cast<float>(1 - beta1);
  const auto keep2 = static_cast<float>(beta2), take2 = static_cast<float>(1 - beta2);
  const auto tiny = static_cast<float>(epsilon), decay = static_cast<float>(weight_decay);
  chunks.for_each([=](const Chunk<5>& chunk) __attribute__((always_inline)) {
    const float* __restrict w = chunk.data[0];
    float* __restrict first = chunk.data[1];
    float* __restrict second = chunk.data[2];
    float* __restrict update = chunk.data[3];
    const float* __restrict g = chunk.data[4];
    for (int64_t i = 0; i < chunk.size; ++i) {
      first[i] = keep1 * first[i] + take1 * g[i];
      second[i] = keep2 * second[i] + take2 * g[i] * g[i];
      update[i] = first[i] * unbias1 / (std::sqrt(second[i]) * unbias2 + tiny) + decay * w[i];
    }
  });
  const auto rate = lr.item<double>();
  for (const auto& [variable, update] : updates) {
    const auto weight_norm = variable.norm().item<double>();
    const auto update_norm = update.norm().item<double>();
    const double trust = weight_norm > 0 && update_norm > 0 ? weight_norm / update_norm : 1;
    variable.sub_(update, trust * rate);
  }
}

}  // namespace

void lamb_(const std::vector<Tensor>& variables, const std::vector<Tensor>& m,
           const std::vector<Tensor>& v, const std::vector<Tensor>& gradients, const Tensor& lr,
           const Tensor& step, LAMBNumbers numbers) {
  static const auto op = find_operator<decltype(lamb_cpu)>("tensorpack::lamb_");
  for_each_device(variables, [&](const OnDevice& here) {
    op.call(here.of(variables), here.of(m), here.of(v), here.of(gradients), here.of(lr),
            here.of(step), numbers.beta1, numbers.beta2, numbers.epsilon, numbers.weight_decay);
  });
  for (const auto* written : {&variables, &m, &v}) count_writes(*written);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "lamb_(Tensor(a!)[] variables, Tensor(b!)[] m, Tensor(c!)[] v, Tensor[] gradients, "
      "Tensor lr, Tensor step, float beta1, float beta2, float epsilon, float weight_decay) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) { library.impl("lamb_", lamb_cpu); }

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("lamb_", lamb_any);
}

}  // namespace tensorpack::kernels
