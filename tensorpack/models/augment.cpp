// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/augment.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

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

// Each image's colours turned by an angle of its own: hue changes, saturation and value (of HSV) do
// not. Hues are counted in sixths of the wheel, from red by green to blue.
at::Tensor turn_hue(const at::Tensor& images, double degrees) {
  const at::Tensor red = images.narrow(1, 0, 1);
  const at::Tensor green = images.narrow(1, 1, 1);
  const at::Tensor blue = images.narrow(1, 2, 1);
  const at::Tensor value = images.amax(1, /*keepdim=*/true);
  const at::Tensor chroma = value - images.amin(1, /*keepdim=*/true);
  const at::Tensor divisor = chroma.masked_fill(chroma == 0, 1);  // grey has no hue to lose
  const at::Tensor hue =
      at::where(value == red, (green - blue) / divisor,
                at::where(value == green, (blue - red) / divisor + 2, (red - green) / divisor + 4));
  const at::Tensor turn = at::rand({images.size(0), 1, 1, 1}, images.options()) * 2 - 1;
  const at::Tensor turned = hue + turn * (degrees / 60);
  const auto channel = [&](double first) {
    const at::Tensor distance = (turned + first).remainder(6);
    return value - chroma * at::minimum(distance, 4 - distance).clamp(0, 1);
  };
  return at::cat({channel(5), channel(3), channel(1)}, 1);
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

// From Beta(alpha, alpha), a scalar. By logarithms: small alphas give numbers that are too small
// for a double.
at::Tensor draw_share(double alpha, const at::Tensor& images) {
  const at::Tensor logs = draw_log_gamma(alpha, images.options().dtype(at::kDouble));
  return (logs.select(0, 0) - logs.select(0, 1)).sigmoid();
}

void check_mixing(const char* where, const at::Tensor& images, const at::Tensor& labels,
                  double alpha) {
  TP_CHECK(images.dim() > 0 && at::isFloatingType(images.scalar_type()) && labels.dim() == 2 &&
               at::isFloatingType(labels.scalar_type()) && labels.size(0) == images.size(0),
           where,
           "images {} [{}] and labels {} [{}] must both be of floating types, and labels be "
           "[n, classes]. one_hot() makes them of integers.",
           c10::toString(images.scalar_type()), fmt::join(images.sizes(), ", "),
           c10::toString(labels.scalar_type()), fmt::join(labels.sizes(), ", "));
  TP_CHECK(alpha > 0, where, "alpha must be positive, got {}.", alpha);
}

// The weighted mean of every row and the one before it.
at::Tensor mix_with_previous(const at::Tensor& own, const at::Tensor& share) {
  const at::Tensor weight = share.to(own.scalar_type());
  return own * weight + own.roll(1, 0) * (1 - weight);
}

// Which of the places in one direction are in a rectangle of that part of the area.
at::Tensor draw_span(int64_t edge, const at::Tensor& area) {
  const auto integers = area.options().dtype(at::kLong);
  const at::Tensor length = (area.sqrt() * static_cast<double>(edge)).to(at::kLong);
  const at::Tensor begin =
      at::randint(edge, {}, integers) - length.div(2, /*rounding_mode=*/"floor");
  const at::Tensor places = at::arange(edge, integers);
  return (places >= begin).logical_and(places < begin + length);
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
           "images of {} need as many means and deviations, got {} and {}.",
           counted(images.size(1), "channel"), mean.size(), std.size());
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
  TP_CHECK(options.brightness >= 0 && options.contrast >= 0 && options.saturation >= 0 &&
               options.hue >= 0,
           "color_jitter",
           "brightness {}, contrast {}, saturation {} and hue {} must not be negative.",
           options.brightness, options.contrast, options.saturation, options.hue);
  TP_CHECK((options.saturation == 0 && options.hue == 0) || images.size(1) == 3, "color_jitter",
           "saturation and hue need three colours, but images have {}.",
           counted(images.size(1), "channel"));
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
  if (options.hue > 0) result = clipped(turn_hue(result, options.hue), options.max);
  return result;
}

std::pair<at::Tensor, at::Tensor> mixup(const at::Tensor& images, const at::Tensor& labels,
                                        MixInTowerOptions options) {
  check_mixing("mixup", images, labels, options.alpha);
  if (!is_training()) return {images, labels};
  const at::Tensor share = draw_share(options.alpha, images);
  return {mix_with_previous(images, share), mix_with_previous(labels, share)};
}

std::pair<at::Tensor, at::Tensor> cutmix(const at::Tensor& images, const at::Tensor& labels,
                                         CutMixInTowerOptions options) {
  check_images("cutmix", images);
  check_mixing("cutmix", images, labels, options.alpha);
  if (!is_training()) return {images, labels};
  const at::Tensor area = 1 - draw_share(options.alpha, images);
  const at::Tensor rows = draw_span(images.size(kRows), area);
  const at::Tensor columns = draw_span(images.size(kColumns), area);
  const at::Tensor cut = rows.unsqueeze(1).logical_and(columns);
  // What was cut off at the edge counts as the image's own.
  const at::Tensor share = 1 - cut.to(at::kDouble).mean();
  return {at::where(cut, images.roll(1, 0), images), mix_with_previous(labels, share)};
}

}  // namespace tensorpack
