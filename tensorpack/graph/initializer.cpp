// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/initializer.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <cmath>

#include "tensorpack/utils/error.h"

namespace tensorpack::init {
namespace {

// erf-based inverse sampling: one draw per element, exactly the truncated distribution.
void fill_truncated_normal(at::Tensor& value, double mean, double stddev,
                           const at::Generator& generator) {
  const double edge = std::erf(std::sqrt(2.0));  // two standard deviations, as erf's argument
  value.uniform_(-edge, edge, generator).erfinv_().mul_(stddev * std::sqrt(2.0)).add_(mean);
}

double fan_of(const at::Tensor& weight, FanMode mode) {
  TP_CHECK(weight.dim() >= 2, "init::variance_scaling",
           "a weight of shape [{}] has no fan. Use init::normal for tensors of fewer than two "
           "dimensions.",
           fmt::join(weight.sizes(), ", "));
  const double receptive =
      static_cast<double>(weight.numel()) / static_cast<double>(weight.size(0) * weight.size(1));
  const double fan_in = static_cast<double>(weight.size(1)) * receptive;
  const double fan_out = static_cast<double>(weight.size(0)) * receptive;
  switch (mode) {
    case FanMode::kIn:
      return fan_in;
    case FanMode::kOut:
      return fan_out;
    case FanMode::kAverage:
      return (fan_in + fan_out) / 2;
  }
  return fan_in;
}

}  // namespace

Initializer zeros() { return constant(0); }
Initializer ones() { return constant(1); }

Initializer constant(double number) {
  return [number](at::Tensor& value, const at::Generator&) { value.fill_(number); };
}

Initializer from(at::Tensor source) {
  return [source = std::move(source)](at::Tensor& value, const at::Generator&) {
    TP_CHECK(source.sizes() == value.sizes(), "init::from",
             "the given value has shape [{}], the variable [{}]. Make them equal.",
             fmt::join(source.sizes(), ", "), fmt::join(value.sizes(), ", "));
    value.copy_(source);
  };
}

Initializer normal(double stddev, double mean) {
  return [=](at::Tensor& value, const at::Generator& generator) {
    value.normal_(mean, stddev, generator);
  };
}

Initializer truncated_normal(double stddev, double mean) {
  return [=](at::Tensor& value, const at::Generator& generator) {
    fill_truncated_normal(value, mean, stddev, generator);
  };
}

Initializer uniform(double low, double high) {
  return [=](at::Tensor& value, const at::Generator& generator) {
    value.uniform_(low, high, generator);
  };
}

Initializer variance_scaling(VarianceScalingOptions options) {
  return [options](at::Tensor& value, const at::Generator& generator) {
    const double variance = options.scale / fan_of(value, options.mode);
    switch (options.distribution) {
      case Distribution::kNormal:
        value.normal_(0, std::sqrt(variance), generator);
        break;
      case Distribution::kTruncatedNormal:
        // Cutting the tails at two sigma leaves this share of the standard deviation.
        fill_truncated_normal(value, 0, std::sqrt(variance) / 0.87962566103423978, generator);
        break;
      case Distribution::kUniform:
        value.uniform_(-std::sqrt(3 * variance), std::sqrt(3 * variance), generator);
        break;
    }
  };
}

Initializer he_normal() { return variance_scaling({.scale = 2}); }

Initializer xavier_uniform() {
  return variance_scaling({.mode = FanMode::kAverage, .distribution = Distribution::kUniform});
}

Initializer orthogonal(double gain) {
  return [gain](at::Tensor& value, const at::Generator& generator) {
    TP_CHECK(value.dim() >= 2, "init::orthogonal",
             "a tensor of shape [{}] cannot be orthogonal. It needs two dimensions or more.",
             fmt::join(value.sizes(), ", "));
    const int64_t rows = value.size(0);
    const int64_t columns = value.numel() / rows;
    at::Tensor flat = at::empty({std::max(rows, columns), std::min(rows, columns)},
                                value.options().requires_grad(false));
    flat.normal_(0, 1, generator);
    auto [q, r] = at::linalg_qr(flat);
    q = q * at::diagonal(r).sign();  // makes the distribution uniform over rotations
    if (rows < columns) q = q.t();
    value.copy_(q.reshape(value.sizes()) * gain);
  };
}

}  // namespace tensorpack::init
