// SPDX-License-Identifier: Apache-2.0
// The models of the engine's benchmarks, over any source of parameters, so that both sides compute
// the same.
#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <string>
#include <vector>

namespace tensorpack::bench {

/// `P` has `weight(name, shape)`, `bias(name, size)` and, for batch norm, `scale(name, size)` and
/// `statistic(name, size, first_value)`.
template <typename P>
at::Tensor dense(P& p, const std::string& name, const at::Tensor& x, int64_t units) {
  return at::linear(x, p.weight(name + "/W", {units, x.size(1)}), p.bias(name + "/b", units));
}

template <typename P>
at::Tensor mlp64(P& p, at::Tensor x) {
  x = at::relu(dense(p, "fc0", x, 64));
  x = at::relu(dense(p, "fc1", x, 64));
  return dense(p, "fc2", x, 10);
}

template <typename P>
at::Tensor lenet(P& p, at::Tensor x) {
  x = at::conv2d(x, p.weight("conv0/W", {20, 1, 5, 5}), p.bias("conv0/b", 20));
  x = at::max_pool2d(at::relu(x), 2);
  x = at::conv2d(x, p.weight("conv1/W", {50, 20, 5, 5}), p.bias("conv1/b", 50));
  x = at::max_pool2d(at::relu(x), 2);
  return dense(p, "fc1", at::relu(dense(p, "fc0", x.flatten(1), 500)), 10);
}

template <typename P>
at::Tensor conv_norm(P& p, const std::string& name, at::Tensor x, int64_t filters, int64_t kernel,
                     int64_t stride) {
  const at::Tensor w = p.weight(name + "/W", {filters, x.size(1), kernel, kernel});
  x = at::conv2d(x, w, {}, stride, kernel / 2);
  return at::batch_norm(x, p.scale(name + "/gamma", filters), p.bias(name + "/beta", filters),
                        p.statistic(name + "/mean", filters, 0),
                        p.statistic(name + "/variance", filters, 1), true, 0.1, 1e-5, false);
}

template <typename P>
at::Tensor resnet18(P& p, at::Tensor x) {
  x = at::relu(conv_norm(p, "conv0", x, 64, 3, 1));
  int64_t filters = 64;
  for (int stage = 0; stage < 4; ++stage, filters *= 2) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = "group" + std::to_string(stage) + "/block" + std::to_string(block);
      const int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      at::Tensor y = at::relu(conv_norm(p, name + "/conv0", x, filters, 3, stride));
      y = conv_norm(p, name + "/conv1", y, filters, 3, 1);
      if (stride != 1) x = conv_norm(p, name + "/shortcut", x, filters, 1, stride);
      x = at::relu(y + x);
    }
  }
  return dense(p, "fc", at::adaptive_avg_pool2d(x, {1, 1}).flatten(1), 10);
}

/// 6 million parameters for little arithmetic: what towers exchange takes as long as what they
/// compute.
template <typename P>
at::Tensor wide_mlp(P& p, at::Tensor x) {
  for (int i = 0; i < 6; ++i) x = at::relu(dense(p, "fc" + std::to_string(i), x, 1024));
  return dense(p, "fc6", x, 10);
}

struct Workload {
  std::string model;
  std::vector<int64_t> batch;  // the shape of one batch
};
inline Workload workload(const std::string& model) {
  if (model == "mlp64") return {model, {32, 64}};
  if (model == "lenet") return {model, {128, 1, 28, 28}};
  if (model == "wide_mlp") return {model, {64, 1024}};
  return {model, {64, 3, 32, 32}};
}

template <typename P>
at::Tensor logits_of(const std::string& model, P& p, const at::Tensor& x) {
  if (model == "mlp64") return mlp64(p, x);
  if (model == "lenet") return lenet(p, x);
  if (model == "wide_mlp") return wide_mlp(p, x);
  return resnet18(p, x);
}

}  // namespace tensorpack::bench
