// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/kernels.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tensorpack/utils/error.h"

namespace tensorpack::kernels {
namespace {

using at::Tensor;
using at::TensorList;

// Elements a thread takes at a time: a few arrays of this length fit its cache.
constexpr int64_t kChunk = 16 * 1024;

bool is_plain(const Tensor& tensor, const Tensor& like) {
  return tensor.scalar_type() == at::kFloat && tensor.sizes() == like.sizes() &&
         tensor.strides() == like.strides() && like.is_non_overlapping_and_dense();
}

// Pointers to the same elements of a variable, its slots and its gradient (the last).
template <size_t N>
struct Chunk {
  std::array<float*, N> data;
  int64_t size;
};

// Loops over chunks are inlined here, so that each is also compiled for wider vectors.
template <size_t N, typename Update>
void update_range(const Chunk<N>* begin, const Chunk<N>* end, const Update& update) {
  for (; begin != end; ++begin) update(*begin);
}

#if defined(__x86_64__)
template <size_t N, typename Update>
[[gnu::target("avx2,fma")]] void update_range_avx2(const Chunk<N>* begin, const Chunk<N>* end,
                                                   const Update& update) {
  for (; begin != end; ++begin) update(*begin);
}
bool has_avx2() {
  static const bool answer = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return answer;
}
#else
template <size_t N, typename Update>
void update_range_avx2(const Chunk<N>* begin, const Chunk<N>* end, const Update& update) {
  update_range(begin, end, update);
}
bool has_avx2() { return false; }
#endif

// Gathers the chunks of many variables, so that one loop over threads serves them all.
template <size_t N>
class Chunks {
 public:
  // False if the tensors cannot be walked as plain arrays.
  bool add(std::array<Tensor, N> tensors) {
    const Tensor& variable = tensors[0];
    for (size_t k = 0; k + 1 < N; ++k) {
      if (!is_plain(tensors[k], variable)) return false;
    }
    if (!is_plain(tensors[N - 1], variable)) {  // a gradient in another memory format
      if (tensors[N - 1].scalar_type() != at::kFloat) return false;
      tensors[N - 1] = at::empty_like(variable).copy_(tensors[N - 1]);
      kept_.push_back(tensors[N - 1]);
    }
    for (int64_t start = 0; start < variable.numel(); start += kChunk) {
      Chunk<N> chunk{{}, std::min(kChunk, variable.numel() - start)};
      for (size_t k = 0; k < N; ++k) chunk.data[k] = tensors[k].template data_ptr<float>() + start;
      chunks_.push_back(chunk);
    }
    return true;
  }

  template <typename Update>
  void for_each(const Update& update) const {
    at::parallel_for(0, static_cast<int64_t>(chunks_.size()), 1, [&](int64_t begin, int64_t end) {
      const auto run = has_avx2() ? update_range_avx2<N, Update> : update_range<N, Update>;
      run(chunks_.data() + begin, chunks_.data() + end, update);
    });
  }

 private:
  std::vector<Chunk<N>> chunks_;
  std::vector<Tensor> kept_;
};

// ---- stochastic gradient descent

void sgd_composed(const Tensor& variable, Tensor velocity, Tensor step, const Tensor& lr,
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

// ---- Adam

void adam_composed(Tensor variable, Tensor m, Tensor v, Tensor gradient, const Tensor& lr,
                   const Tensor& step, const AdamNumbers& n) {
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

// ---- finiteness

void check_finite_any(TensorList tensors, const std::vector<std::string>& names) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    // x - x is 0 for every finite x, and NaN for the others.
    TP_CHECK((tensors[i] - tensors[i]).sum().item<double>() == 0, "CheckGradient",
             "the gradient of '{}' has a NaN or an infinity. Lower the learning rate, clip "
             "gradients, or look at the cost.",
             names[i]);
  }
}

// Dispatches call by call: the schemas are looked up once.
template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

// What libtorch does for its own in-place operators: a backward pass that needs the old value then
// says so.
void bump_versions(const std::vector<Tensor>& tensors) {
  for (const Tensor& tensor : tensors) {
    if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  }
}

}  // namespace

void sgd_(const std::vector<Tensor>& variables, const std::vector<Tensor>& velocities,
          const std::vector<Tensor>& gradients, const Tensor& lr, MomentumNumbers numbers) {
  static const auto op = find_operator<decltype(sgd_cpu)>("tensorpack::sgd_");
  op.call(variables, velocities, gradients, lr, numbers.momentum, numbers.nesterov,
          numbers.weight_decay);
  bump_versions(variables);
  bump_versions(velocities);
}

void adam_(const std::vector<Tensor>& variables, const std::vector<Tensor>& m,
           const std::vector<Tensor>& v, const std::vector<Tensor>& gradients, const Tensor& lr,
           const Tensor& step, AdamNumbers numbers) {
  static const auto op = find_operator<decltype(adam_cpu)>("tensorpack::adam_");
  op.call(variables, m, v, gradients, lr, step, numbers.beta1, numbers.beta2, numbers.epsilon,
          numbers.weight_decay, numbers.decoupled);
  bump_versions(variables);
  bump_versions(m);
  bump_versions(v);
}

// No write and no result: a recorded program keeps such nodes, and their order.
void check_finite(const std::vector<Tensor>& tensors, const std::vector<std::string>& names) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("tensorpack::check_finite", "");
  torch::jit::Stack stack{tensors, names};
  op.callBoxed(stack);
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def(
      "sgd_(Tensor(a!)[] variables, Tensor(b!)[] velocities, Tensor[] gradients, Tensor lr, "
      "float momentum, bool nesterov, float weight_decay) -> ()");
  library.def(
      "adam_(Tensor(a!)[] variables, Tensor(b!)[] m, Tensor(c!)[] v, Tensor[] gradients, "
      "Tensor lr, Tensor step, float beta1, float beta2, float epsilon, float weight_decay, "
      "bool decoupled) -> ()");
  library.def("check_finite(Tensor[] tensors, str[] names) -> ()");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) {
  library.impl("sgd_", sgd_cpu);
  library.impl("adam_", adam_cpu);
}

TORCH_LIBRARY_IMPL(tensorpack, CompositeExplicitAutograd, library) {
  library.impl("sgd_", sgd_any);
  library.impl("adam_", adam_any);
  library.impl("check_finite", [](TensorList tensors, std::vector<std::string> names) {
    check_finite_any(tensors, names);
  });
}

}  // namespace tensorpack::kernels
