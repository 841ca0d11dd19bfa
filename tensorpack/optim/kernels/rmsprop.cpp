// SPDX-License-Identifier: Apache-2.0
#include <torch/library.h>

#include <cmath>

#include "tensorpack/optim/kernels.h"
#include "tensorpack/optim/kernels/by_device.h"
#include "tensorpack/optim/kernels/chunks.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::kernels {
namespace {

// A list that is not asked for is empty.
Tensor nth(TensorList list, size_t i) { return list.empty() ? Tensor() : list[i]; }

void rmsprop_composed(const Tensor& variable, const Tensor& square, const Tensor& mean,
                      const Tensor& velocity, Tensor gradient, const Tensor& lr,
                      const RMSPropNumbers& n) {
  if (n.weight_decay != 0) gradient = gradient.add(variable, n.weight_decay);
  square.mul_(n.alpha).addcmul_(gradient, gradient, 1 - n.alpha);
  Tensor scale = square;
  if (mean.defined()) {
    mean.mul_(n.alpha).add_(gradient, 1 - n.alpha);
    scale = square.addcmul(mean, mean, -1);
  }
  Tensor step = gradient / scale.sqrt().add_(n.epsilon);
  if (velocity.defined()) step = velocity.mul_(n.momentum).add_(step);
  variable.addcmul_(step, lr, -1);
}

void rmsprop_any(TensorList variables, TensorList squares, TensorList means, TensorList velocities,
                 TensorList gradients, const Tensor& lr, double alpha, double epsilon,
                 double momentum, double weight_decay) {
  for (size_t i = 0; i < variables.size(); ++i) {
    rmsprop_composed(variables[i], squares[i], nth(means, i), nth(velocities, i), gradients[i], lr,
                     {alpha, epsilon, momentum, weight_decay});
  }
}

// The order of the arrays in a chunk. Of a list that is empty the variable takes the place, unread.
enum { kVariable, kSquare, kMean, kVelocity, kGradient, kArrays };

// Two booleans as templates, so that the loop has no branches.
template <bool centered, bool has_momentum>
void update(const Chunks<kArrays>& chunks, double lr, const RMSPropNumbers& n) {
  const auto rate = static_cast<float>(lr), decay = static_cast<float>(n.weight_decay);
  const auto keep = static_cast<float>(n.alpha), take = static_cast<float>(1 - n.alpha);
  const auto tiny = static_cast<float>(n.epsilon), drag = static_cast<float>(n.momentum);
  chunks.for_each([=](const Chunk<kArrays>& chunk) __attribute__((always_inline)) {
    float* __restrict w = chunk.data[kVariable];
    float* __restrict square = chunk.data[kSquare];
    float* __restrict mean = chunk.data[kMean];
    float* __restrict velocity = chunk.data[kVelocity];
    const float* __restrict g = chunk.data[kGradient];
    for (int64_t i = 0; i < chunk.size; ++i) {
      const float gradient = g[i] + decay * w[i];
      square[i] = keep * square[i] + take * gradient * gradient;
      float scale = square[i];
      if constexpr (centered) {
        mean[i] = keep * mean[i] + take * gradient;
        scale -= mean[i] * mean[i];
      }
      float step = gradient / (std::sqrt(scale) + tiny);
      if constexpr (has_momentum) step = velocity[i] = drag * velocity[i] + step;
      w[i] -= rate * step;
    }
  });
}

void rmsprop_cpu(TensorList variables, TensorList squares, TensorList means, TensorList velocities,
                 TensorList gradients, const Tensor& lr, double alpha, double epsilon,
                 double momentum, double weight_decay) {
  const RMSPropNumbers n{alpha, epsilon, momentum, weight_decay};
  const bool centered = !means.empty(), has_momentum = !velocities.empty();
  Chunks<kArrays> chunks;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (!chunks.add({variables[i], squares[i], centered ? means[i] : variables[i],
                     has_momentum ? velocities[i] : variables[i], gradients[i]})) {
      rmsprop_composed(variables[i], squares[i], nth(means, i), nth(velocities, i), gradients[i],
                       lr, n);
    }
  }
  const auto run = centered ? (has_momentum ? update<true, true> : update<true, false>)
                            : (has_momentum ? update<false, true> : update<false, false>);
  run(chunks, lr.item<double>(), n);
}

}  // namespace

void rmsprop_(const std::vector<Tensor>& variables, const std::vector<Tensor>& squares,
              const std::vector<Tensor>& means, const std::vector<Tensor>& velocities,
              const std::vector<Tensor>& gradients, const Tensor& lr, RMSPropNumbers numbers) {
  static const auto op = find_operator<decltype(rmsprop_cpu)>("tensorpack::rmsprop_");
  for_each_device(variables, [&](const OnDevice& here) {
    op.call(here.of(variables), here.of(squares), here.of(means), here.of(velocities),
            here.of(gradients), here.of(lr), numbers.alpha, numbers.epsilon, numbers.momentum,
            numbers.weight_decay);
  });
  for (const auto* written : {&variables, &squares, &means, &velocities}) count_writes(*written);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "rmsprop_(Tensor(a!)[] variables, Tensor(b!)[] squares, Tensor(c!)[] means, "
      "Tensor(d!)[] velocities, Tensor[] gradients, Tensor lr, float alpha, float epsilon, "
      "float momentum, float weight_decay) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) { library.impl("rmsprop_", rmsprop_cpu); }

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("rmsprop_", rmsprop_any);
}

}  // namespace tensorpack::kernels
