// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/augment.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr int64_t kRows = 2;
constexpr int64_t kColumns = 3;

void check_images(const char* where, const at::Tensor& images) {
  TP_CHECK(images.dim() == 4 && at::isFloatingType(images.scalar_type()), where,
           "images must be [n, channels, height, width] of a floating type, but they are {} [{}].",
           c10::toString(images.scalar_type()), fmt::join(images.sizes(), ", "));
}

// Of each image, as many rows (columns) as before the padding, from a random one on.
at::Tensor random_slice(const at::Tensor& padded, int64_t dim, int64_t padding) {
  const int64_t length = padded.size(dim) - 2 * padding;
  const auto integers = padded.options().dtype(at::kLong);
  at::Tensor index =
      at::arange(length, integers) + at::randint(2 * padding + 1, {padded.size(0), 1}, integers);
  index = dim == kRows ? index.unsqueeze(1).unsqueeze(3) : index.unsqueeze(1).unsqueeze(2);
  std::vector<int64_t> sizes = padded.sizes().vec();
  sizes[dim] = length;
  return padded.gather(dim, index.expand(sizes));
}

// For each image a number in [low, high).
at::Tensor draw_factors(const at::Tensor& images, double by) {
  const double low = std::max(0.0, 1 - by);
  return low + (1 + by - low) * at::rand({images.size(0), 1, 1, 1}, images.options());
}

at::Tensor grey(const at::Tensor& images) {
  if (images.size(1) != 3) return images.mean(1, /*keepdim=*/true);
  // The weights of ITU-R BT.601.
  return 0.299 * images.narrow(1, 0, 1) + 0.587 * images.narrow(1, 1, 1) +
         0.114 * images.narrow(1, 2, 1);
}

at::Tensor clipped(const at::Tensor& images, const std::optional<double>& max) {
  return max ? images.clamp(0, *max) : images;
}

// The logarithms of two numbers from the gamma distribution, [2]. After Marsaglia and Tsang (2000),
// who accept nearly all draws from a cubed normal distribution; of sixteen the first one that is
// accepted is taken, so that shapes are fixed.
at::Tensor draw_log_gamma(double shape, const at::TensorOptions& options) {
  constexpr int64_t kCandidates = 16;
  const double d = (shape < 1 ? shape + 1 : shape) - 1. / 3;
  const at::Tensor x = at::randn({2, kCandidates}, options);
  const at::Tensor u = at::rand({2, kCandidates}, options);
  const at::Tensor v = (1 + x / std::sqrt(9 * d)).pow(3);
  const at::Tensor accepted =
      u.log() < 0.5 * x.square() + d - d * v + d * v.log();  // not where v < 0
  const at::Tensor first = accepted.to(at::kInt).argmax(1, /*keepdim=*/true);
  const at::Tensor log_gamma = (d * v).log().gather(1, first).squeeze(1);
  return shape < 1 ? log_gamma + at::rand({2}, options).log() / shape : log_gamma;
}

}  // namespace

at::Tensor random_crop(const at::Tensor& images, RandomCropOptions options) {
  check_images("random_crop", images);
  const int64_t padding = options.padding;
  TP_CHECK(padding >= 0, "random_crop", "the padding must not be negative, got {}.", padding);
  if (!is_training() || padding == 0) return images;
  const at::Tensor padded = at::constant_pad_nd(images, {padding, padding, padding, padding});
  return random_slice(random_slice(padded, kRows, padding), kColumns, padding);
}

at::Tensor random_flip(const at::Tensor& images, RandomFlipOptions options) {
  check_images("random_flip", images);
  TP_CHECK(options.probability >= 0 && options.probability <= 1, "random_flip",
           "{} is no probability.", options.probability);
  if (!is_training()) return images;
  const at::Tensor flips =
      at::rand({images.size(0), 1, 1, 1}, images.options().dtype(at::kFloat)) < options.probability;
  return at::where(flips, images.flip({options.vertical ? kRows : kColumns}), images);
}

at::Tensor normalize(const at::Tensor& images, const std::vector<double>& mean,
                     const std::vector<double>& std) {
  check_images("normalize", images);
  const auto channels = static_cast<size_t>(images.size(1));
  TP_CHECK(mean.size() == channels && std.size() == channels, "normalize",
           "images of {} channels need as many means and deviations, got {} and {}.", channels,
           mean.size(), std.size());
  std::vector<at::Tensor> normalized;
  for (size_t c = 0; c < channels; ++c) {
    TP_CHECK(std[c] > 0, "normalize", "a deviation cannot be {}.", std[c]);
    // Numbers, not tensors: they need no way to the device.
    normalized.push_back((images.select(1, static_cast<int64_t>(c)) - mean[c]) * (1 / std[c]));
  }
  return at::stack(normalized, 1);
}

at::Tensor color_jitter(const at::Tensor& images, RandomColorOptions options) {
  check_images("color_jitter", images);
  TP_CHECK(options.brightness >= 0 && options.contrast >= 0 && options.saturation >= 0,
           "color_jitter", "brightness {}, contrast {} and saturation {} must not be negative.",
           options.brightness, options.contrast, options.saturation);
  TP_CHECK(options.saturation == 0 || images.size(1) == 3, "color_jitter",
           "saturation needs three colours, but images have {} channels.", images.size(1));
  if (!is_training()) return images;
  at::Tensor result = images;
  if (options.brightness > 0) {
    result = clipped(result * draw_factors(result, options.brightness), options.max);
  }
  if (options.contrast > 0) {
    const at::Tensor mean = grey(result).mean({1, 2, 3}, /*keepdim=*/true);
    result = clipped(mean + (result - mean) * draw_factors(result, options.contrast), options.max);
  }
  if (options.saturation > 0) {
    const at::Tensor base = grey(result);
    result =
        clipped(base + (result - base) * draw_factors(result, options.saturation), options.max);
  }
  return result;
}

std::pair<at::Tensor, at::Tensor> mixup(const at::Tensor& images, const at::Tensor& labels,
                                        MixInTowerOptions options) {
  TP_CHECK(images.dim() > 0 && at::isFloatingType(images.scalar_type()) && labels.dim() == 2 &&
               at::isFloatingType(labels.scalar_type()) && labels.size(0) == images.size(0),
           "mixup",
           "images {} [{}] and labels {} [{}] must both be of floating types, and labels be "
           "[n, classes]. one_hot() makes them of integers.",
           c10::toString(images.scalar_type()), fmt::join(images.sizes(), ", "),
           c10::toString(labels.scalar_type()), fmt::join(labels.sizes(), ", "));
  TP_CHECK(options.alpha > 0, "mixup", "alpha must be positive, got {}.", options.alpha);
  if (!is_training()) return {images, labels};
  // By logarithms: small alphas give numbers that are too small for a double.
  const at::Tensor logs = draw_log_gamma(options.alpha, images.options().dtype(at::kDouble));
  const at::Tensor share = (logs.select(0, 0) - logs.select(0, 1)).sigmoid();
  const auto mix = [&](const at::Tensor& own) {
    const at::Tensor weight = share.to(own.scalar_type());
    return own * weight + own.roll(1, 0) * (1 - weight);
  };
  return {mix(images), mix(labels)};
}

}  // namespace tensorpack
