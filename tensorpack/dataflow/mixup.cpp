// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/mixup.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// After Marsaglia and Tsang (2000), who accept nearly all draws from a cubed normal distribution.
double draw_gamma(double shape, Rng& rng) {
  if (shape < 1) return draw_gamma(shape + 1, rng) * std::pow(rng.uniform(), 1 / shape);
  const double d = shape - 1. / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = rng.normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log1p(-rng.uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

// From Beta(alpha, alpha).
double draw_share(double alpha, Rng& rng) {
  const double own = draw_gamma(alpha, rng);
  const double sum = own + draw_gamma(alpha, rng);
  return sum > 0 ? own / sum : 0.5;  // tiny alphas give numbers that are too small for a double
}

// The datapoint's batch, and which image goes to which.
struct Pairs {
  at::Tensor images;
  at::Tensor labels;
  at::Tensor partners;  // indices
};

template <typename Options>
Pairs pairs_of(const char* where, const DataPoint& point, const Options& options, Rng& rng) {
  const size_t needed = std::max(options.images, options.labels);
  TP_CHECK(needed < point.size(), where,
           "there is no component {}: the datapoint has {}. Count from 0.", needed, point.size());
  const at::Tensor& images = point[options.images];
  const at::Tensor& labels = point[options.labels];
  const auto type = images.scalar_type();
  TP_CHECK(
      images.dim() >= 2 && labels.dim() == 1 && images.size(0) == labels.size(0) &&
          (type == at::kByte || type == at::kFloat) &&
          at::isIntegralType(labels.scalar_type(), /*includeBool=*/false),
      where,
      "images {} [{}] and labels {} [{}] are no batch: images must be uint8 or float32, labels "
      "integers [n]. Put this behind batch().",
      c10::toString(type), fmt::join(images.sizes(), ", "), c10::toString(labels.scalar_type()),
      fmt::join(labels.sizes(), ", "));
  return {images, labels, at::tensor(random_permutation(images.size(0), rng))};
}

at::Tensor one_hot(const char* where, const at::Tensor& labels, int64_t classes) {
  TP_CHECK(labels.numel() == 0 ||
               (labels.min().item<int64_t>() >= 0 && labels.max().item<int64_t>() < classes),
           where, "labels are {} to {}, but there are {} classes.", labels.min().item<int64_t>(),
           labels.max().item<int64_t>(), classes);
  return labels.unsqueeze(1).eq(at::arange(classes, labels.options())).to(at::kFloat);
}

// The batch with mixed images, of which `share` is their own.
template <typename Options>
DataPoint mixed(const char* where, DataPoint point, const Options& options, const Pairs& pairs,
                at::Tensor images, double share) {
  const at::Tensor other = pairs.labels.index_select(0, pairs.partners);
  point[options.images] = std::move(images);
  if (options.classes > 0) {
    point[options.labels] = one_hot(where, pairs.labels, options.classes) * share +
                            one_hot(where, other, options.classes) * (1 - share);
  } else {
    point.push_back(other);
    point.push_back(at::scalar_tensor(share, at::kFloat));
  }
  return point;
}

at::Tensor weighted_mean(const Pairs& pairs, double share) {
  const at::Tensor own = pairs.images.to(at::kFloat);
  const at::Tensor mean = own * share + own.index_select(0, pairs.partners) * (1 - share);
  return pairs.images.scalar_type() == at::kByte ? mean.round_().to(at::kByte) : mean;
}

// Where a rectangle with a share of the area begins and ends in one direction, cut off at the edge.
struct Cut {
  int64_t begin = 0;
  int64_t length = 0;
};

Cut draw_cut(int64_t edge, double area, Rng& rng) {
  const auto length = static_cast<int64_t>(static_cast<double>(edge) * std::sqrt(area));
  const int64_t center = rng.between(0, edge - 1);
  const int64_t begin = std::clamp<int64_t>(center - length / 2, 0, edge);
  const int64_t end = std::clamp<int64_t>(center - length / 2 + length, 0, edge);
  return {.begin = begin, .length = end - begin};
}

template <typename Options>
void check_options(const char* where, const Options& options) {
  TP_CHECK(options.alpha > 0, where, "alpha must be positive, got {}.", options.alpha);
  TP_CHECK(options.probability >= 0 && options.probability <= 1, where, "{} is no probability.",
           options.probability);
  TP_CHECK(options.classes >= 0, where, "there cannot be {} classes.", options.classes);
}

}  // namespace

MixFunction Mixup(MixupOptions options) {
  constexpr const char* kName = "Mixup";
  check_options(kName, options);
  return [options](DataPoint point, Rng& rng) {
    const Pairs pairs = pairs_of(kName, point, options, rng);
    const bool mixes = rng.chance(options.probability);
    const double share = mixes ? draw_share(options.alpha, rng) : 1;
    at::Tensor images = mixes ? weighted_mean(pairs, share) : pairs.images;
    return mixed(kName, std::move(point), options, pairs, std::move(images), share);
  };
}

MixFunction CutMix(CutMixOptions options) {
  constexpr const char* kName = "CutMix";
  check_options(kName, options);
  return [options](DataPoint point, Rng& rng) {
    const Pairs pairs = pairs_of(kName, point, options, rng);
    TP_CHECK(pairs.images.dim() == 4, kName, "images must have four dimensions, got [{}].",
             fmt::join(pairs.images.sizes(), ", "));
    const int64_t rows = options.channels_last ? 1 : 2;
    const int64_t height = pairs.images.size(rows);
    const int64_t width = pairs.images.size(rows + 1);
    if (!rng.chance(options.probability)) {
      return mixed(kName, std::move(point), options, pairs, pairs.images, 1);
    }
    const double area = 1 - draw_share(options.alpha, rng);
    const Cut y = draw_cut(height, area, rng);
    const Cut x = draw_cut(width, area, rng);
    const auto cut = [&](const at::Tensor& images) {
      return images.narrow(rows, y.begin, y.length).narrow(rows + 1, x.begin, x.length);
    };
    at::Tensor images = pairs.images.clone();
    cut(images).copy_(cut(pairs.images).index_select(0, pairs.partners));
    const double share =
        1 - static_cast<double>(y.length * x.length) / static_cast<double>(height * width);
    return mixed(kName, std::move(point), options, pairs, std::move(images), share);
  };
}

}  // namespace tensorpack
