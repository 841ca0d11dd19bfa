// SPDX-License-Identifier: Apache-2.0
// How a variable gets its first value.
#pragma once

#include <ATen/core/Generator.h>

#include <functional>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Fills a new variable in place, drawing from the generator it is given. Every variable has a
/// generator of its own, seeded from the graph's seed and the variable's name, so that its first
/// value does not depend on what else the model creates.
using Initializer = std::function<void(at::Tensor& value, const at::Generator& generator)>;

namespace init {

Initializer zeros();
Initializer ones();
Initializer constant(double value);
/// Copies `value`, which must have the variable's shape.
Initializer from(at::Tensor value);
Initializer normal(double stddev, double mean = 0);
/// A normal distribution whose draws beyond two standard deviations are drawn again.
Initializer truncated_normal(double stddev, double mean = 0);
Initializer uniform(double low, double high);

enum class FanMode { kIn, kOut, kAverage };
enum class Distribution { kNormal, kTruncatedNormal, kUniform };

struct VarianceScalingOptions {
  double scale = 1;
  FanMode mode = FanMode::kIn;
  Distribution distribution = Distribution::kNormal;
};
/// Variance scale / fan. A weight is [out, in, kernel...], as in libtorch.
Initializer variance_scaling(VarianceScalingOptions options);
/// Variance 2 / fan_in: for layers followed by ReLU.
Initializer he_normal();
/// Uniform with variance 2 / (fan_in + fan_out).
Initializer xavier_uniform();
Initializer orthogonal(double gain = 1);

}  // namespace init
}  // namespace tensorpack
