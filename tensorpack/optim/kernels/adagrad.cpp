// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include <cmath>

#include "tensorpack/optim/kernels.h"
#include "tensorpack/optim/kernels/by_device.h"
#include "tensorpack/optim/kernels/chunks.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::kernels {
namespace {

void adagrad_composed(const Tensor& variable, const Tensor& sum, Tensor gradient, const Tensor& lr,
                      double epsilon, double weight_decay) {
  if (weight_decay != 0) gradient = gradient.add(variable, weight_decay);
  sum.addcmul_(gradient, gradient);
  const Tensor step = gradient / sum.sqrt().add_(epsilon);
  variable.sub_(step.mul_(lr));
}

void adagrad_any(TensorList variables, TensorList sums, TensorList gradients, const Tensor& lr,
                 double epsilon, double weight_decay) {
  for (size_t i = 0; i < variables.size(); ++i) {
    adagrad_composed(variables[i], sums[i], gradients[i], lr, epsilon, weight_decay);
  }
}

void adagrad_cpu(TensorList variables, TensorList sums, TensorList gradients, const Tensor& lr,
                 double epsilon, double weight_decay) {
  Chunks<3> chunks;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!chunks.add({variables[i], sums[i], gradients[i]})) {
      adagrad_composed(variables[i], sums[i], gradients[i], lr, epsilon, weight_decay);
    }
  }
  const auto rate = static_cast<float>(lr.item<double>());
  const auto decay = static_cast<float>(weight_decay), tiny = static_cast<float>(epsilon);
  chunks.for_each([=](const Chunk<3>& chunk) __attribute__((always_inline)) {
    float* __restrict w = chunk.data[0];
    float* __restrict sum = chunk.data[1];
    const float* __restrict g = chunk.data[2];
    for (int64_t i = 0; i < chunk.size; ++i) {
      const float gradient = g[i] + decay * w[i];
      sum[i] += gradient * gradient;
      w[i] -= rate * gradient / (std::sqrt(sum[i]) + tiny);
    }
  });
}

}  // namespace

void adagrad_(const std::vector<Tensor>& variables, const std::vector<Tensor>& sums,
              const std::vector<Tensor>& gradients, const Tensor& lr, AdagradNumbers numbers) {
  static const auto op = find_operator<decltype(adagrad_cpu)>("tensorpack::adagrad_");
  for_each_device(variables, [&](const OnDevice& here) {
    op.call(here.of(variables), here.of(sums), here.of(gradients), here.of(lr), numbers.epsilon,
            numbers.weight_decay);
  });
  count_writes(variables);
  count_writes(sums);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "adagrad_(Tensor(a!)[] variables, Tensor(b!)[] sums, Tensor[] gradients, Tensor lr, "
      "float epsilon, float weight_decay) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) { library.impl("adagrad_", adagrad_cpu); }

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("adagrad_", adagrad_any);
}

}  // namespace tensorpack::kernels
