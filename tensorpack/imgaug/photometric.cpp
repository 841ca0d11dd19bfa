// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/photometric.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

#include "tensorpack/imgaug/detail/linear.h"
#include "tensorpack/imgaug/mat.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::imgaug {
namespace {

using detail::ChannelStats;
using detail::Linear;

void check_range(const char* where, const Range& range, double lowest) {
  TP_CHECK(range.low >= lowest && range.low <= range.high, where,
           "the range must be ascending and not below {}, but it is {} to {}.", lowest, range.low,
           range.high);
}

std::vector<Linear> same_for_all(const at::Tensor& image, Linear linear) {
  return std::vector<Linear>(channels_of(image), linear);
}

// An augmentor that draws nothing.
ImageAugmentor fixed(const char* name, Transform::Function image) {
  return {name, [transform = photometric(name, std::move(image))](const at::Tensor&, Rng&) {
            return transform;
          }};
}

// Converts the colours of an image of `channels`.
at::Tensor convert_colors(const char* where, const at::Tensor& image, int code,
                          int64_t channels = 3) {
  TP_CHECK(channels_of(image) == channels, where, "this needs an image of {}, not of {}.",
           counted(channels, "channel"), channels_of(image));
  const at::Tensor dense = with_dense_rows(image);
  cv::Mat out;
  cv::cvtColor(as_mat(dense), out, code);
  return as_image(out);
}

void turn_hue(cv::Mat& hsv, double by) {
  const bool is_byte = hsv.depth() == CV_8U;
  const double circle = is_byte ? 180 : 360;
  const double turn = is_byte ? std::round(by) : 2 * by;
  const auto turned = [&](double hue) {
    const double rest = std::fmod(hue + turn, circle);
    return rest < 0 ? rest + circle : rest;
  };
  if (is_byte) {
    hsv.forEach<cv::Vec3b>(
        [&](cv::Vec3b& pixel, const int*) { pixel[0] = static_cast<uchar>(turned(pixel[0])); });
  } else {
    hsv.forEach<cv::Vec3f>(
        [&](cv::Vec3f& pixel, const int*) { pixel[0] = static_cast<float>(turned(pixel[0])); });
  }
}

at::Tensor change_hue(const at::Tensor& image, double by, bool rgb) {
  TP_CHECK(channels_of(image) == 3, "Hue", "this needs an image of three colours, not of {}.",
           channels_of(image));
  return map_mat(image, [&](const cv::Mat& in) {
    cv::Mat hsv;
    cv::Mat out;
    cv::cvtColor(in, hsv, rgb ? cv::COLOR_RGB2HSV : cv::COLOR_BGR2HSV);
    turn_hue(hsv, by);
    cv::cvtColor(hsv, out, rgb ? cv::COLOR_HSV2RGB : cv::COLOR_HSV2BGR);
    return out;
  });
}

at::Tensor change_contrast(const at::Tensor& image, double factor, const ContrastOptions& options) {
  const std::vector<ChannelStats> stats = detail::channel_stats(image);
  std::vector<Linear> channels = same_for_all(image, {.scale = factor});
  if (options.rgb) {
    const auto weights = detail::grey_weights("Contrast", image, *options.rgb);
    double grey = 0;
    for (size_t c = 0; c < channels.size(); ++c) grey += weights[c] * stats[c].mean;
    for (Linear& channel : channels) channel.offset = grey * (1 - factor);
  } else {
    for (size_t c = 0; c < channels.size(); ++c) {
      channels[c].offset = stats[c].mean * (1 - factor);
    }
  }
  return detail::apply(image, channels, options.clip);
}

// factor * pixel + (1 - factor) * grey.
at::Tensor change_saturation(const at::Tensor& image, double factor,
                             const SaturationOptions& options) {
  const auto weights = detail::grey_weights("Saturation", image, options.rgb);
  double matrix[3][3];
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      matrix[row][column] = (1 - factor) * weights[column] + (row == column ? factor : 0);
    }
  }
  return detail::mix_channels(image, matrix, options.clip);
}

at::Tensor change_gamma(const at::Tensor& image, double gamma) {
  const auto changed = [power = 1 / (1 + gamma)](double value) {
    return 255 * std::pow(std::max(value, 0.0) / 255, power);
  };
  return map_mat(image, [&](const cv::Mat& in) {
    cv::Mat out;
    if (in.depth() == CV_8U) {
      cv::Mat table(1, 256, CV_8U);
      for (int i = 0; i < 256; ++i) table.at<uchar>(i) = cv::saturate_cast<uchar>(changed(i));
      cv::LUT(in, table, out);
    } else {
      out = in.clone();
      const int values = out.cols * out.channels();
      for (int y = 0; y < out.rows; ++y) {
        auto* row = out.ptr<float>(y);
        std::transform(row, row + values, row,
                       [&](float value) { return static_cast<float>(changed(value)); });
      }
    }
    return out;
  });
}

struct Blur {
  cv::Size window;
  double sigma_x = 0;
  double sigma_y = 0;
};

Blur draw_blur(const GaussianBlurOptions& options, Rng& rng) {
  const auto draw_edge = [&] {
    return 2 * static_cast<int>(rng.between(options.radius.low, options.radius.high)) + 1;
  };
  const auto draw_sigma = [&] { return rng.uniform(options.sigma.low, options.sigma.high); };
  Blur blur;
  blur.window.width = draw_edge();
  blur.sigma_x = draw_sigma();
  blur.window.height = options.symmetric ? blur.window.width : draw_edge();
  blur.sigma_y = options.symmetric ? blur.sigma_x : draw_sigma();
  return blur;
}

at::Tensor to_grey(const at::Tensor& image, const GrayscaleOptions& options) {
  const at::Tensor grey =
      convert_colors("Grayscale", image, options.rgb ? cv::COLOR_RGB2GRAY : cv::COLOR_BGR2GRAY);
  return options.keep_channels ? grey.expand({-1, -1, 3}).contiguous() : grey;
}

int opencv_code(ColorConversion conversion) {
  switch (conversion) {
    case ColorConversion::kSwapRedAndBlue:
      return cv::COLOR_RGB2BGR;
    case ColorConversion::kGrayToRgb:
      return cv::COLOR_GRAY2RGB;
    case ColorConversion::kRgbToHsv:
      return cv::COLOR_RGB2HSV;
    case ColorConversion::kHsvToRgb:
      return cv::COLOR_HSV2RGB;
    case ColorConversion::kRgbToLab:
      return cv::COLOR_RGB2Lab;
    case ColorConversion::kLabToRgb:
      return cv::COLOR_Lab2RGB;
    case ColorConversion::kRgbToYuv:
      return cv::COLOR_RGB2YUV;
    case ColorConversion::kYuvToRgb:
      return cv::COLOR_YUV2RGB;
    case ColorConversion::kBgrToHsv:
      return cv::COLOR_BGR2HSV;
    case ColorConversion::kHsvToBgr:
      return cv::COLOR_HSV2BGR;
    case ColorConversion::kBgrToLab:
      return cv::COLOR_BGR2Lab;
    case ColorConversion::kLabToBgr:
      return cv::COLOR_Lab2BGR;
    case ColorConversion::kBgrToYuv:
      return cv::COLOR_BGR2YUV;
    case ColorConversion::kYuvToBgr:
      return cv::COLOR_YUV2BGR;
  }
  throw make_error("ColorSpace", "there is no conversion number {}.", static_cast<int>(conversion));
}

// An image without contrast is not blown up to noise: the deviation is that of one part in n.
Linear to_unit_variance(const ChannelStats& stats, int64_t values) {
  const double variance = stats.mean_of_squares - stats.mean * stats.mean;
  const double deviation =
      std::max(std::sqrt(std::max(variance, 0.0)), 1 / std::sqrt(static_cast<double>(values)));
  return {.scale = 1 / deviation, .offset = -stats.mean / deviation};
}

Linear to_extremes(const ChannelStats& stats, const MinMaxNormalizeOptions& options) {
  if (stats.max == stats.min) return {.scale = 0, .offset = options.min};
  const double scale = (options.max - options.min) / (stats.max - stats.min);
  return {.scale = scale, .offset = options.min - scale * stats.min};
}

// What to do with each channel, by what is known of each, or of all together.
template <typename Function>
std::vector<Linear> by_stats(const at::Tensor& image, bool together, Function&& function) {
  const std::vector<ChannelStats> stats = detail::channel_stats(image);
  if (together) return same_for_all(image, function(detail::together(stats)));
  std::vector<Linear> channels;
  for (const ChannelStats& channel : stats) channels.push_back(function(channel));
  return channels;
}

}  // namespace

ImageAugmentor Hue(HueOptions options) {
  check_range("Hue", options.range, -180);
  return {"Hue", [options](const at::Tensor&, Rng& rng) {
            const double by = rng.uniform(options.range.low, options.range.high);
            return photometric("Hue", [by, rgb = options.rgb](const at::Tensor& image) {
              return change_hue(image, by, rgb);
            });
          }};
}

ImageAugmentor Brightness(BrightnessOptions options) {
  TP_CHECK(options.delta >= 0, "Brightness", "the delta must not be negative, got {}.",
           options.delta);
  return {"Brightness", [options](const at::Tensor&, Rng& rng) {
            const double by = rng.uniform(-options.delta, options.delta);
            return photometric("Brightness", [by, clip = options.clip](const at::Tensor& image) {
              return detail::apply(image, same_for_all(image, {.offset = by}), clip);
            });
          }};
}

ImageAugmentor BrightnessScale(BrightnessScaleOptions options) {
  check_range("BrightnessScale", options.range, 0);
  return {"BrightnessScale", [options](const at::Tensor&, Rng& rng) {
            const double factor = rng.uniform(options.range.low, options.range.high);
            return photometric(
                "BrightnessScale", [factor, clip = options.clip](const at::Tensor& image) {
                  return detail::apply(image, same_for_all(image, {.scale = factor}), clip);
                });
          }};
}

ImageAugmentor Contrast(ContrastOptions options) {
  check_range("Contrast", options.range, 0);
  return {"Contrast", [options](const at::Tensor&, Rng& rng) {
            const double factor = rng.uniform(options.range.low, options.range.high);
            return photometric("Contrast", [factor, options](const at::Tensor& image) {
              return change_contrast(image, factor, options);
            });
          }};
}

ImageAugmentor Saturation(SaturationOptions options) {
  TP_CHECK(options.alpha >= 0, "Saturation", "alpha must not be negative, got {}.", options.alpha);
  return {"Saturation", [options](const at::Tensor&, Rng& rng) {
            return SaturationTransform(1 + rng.uniform(-options.alpha, options.alpha), options);
          }};
}

Transform SaturationTransform(double factor, SaturationOptions options) {
  return photometric("Saturation", [factor, options](const at::Tensor& image) {
    return change_saturation(image, factor, options);
  });
}

ImageAugmentor Lighting(LightingOptions options) {
  TP_CHECK(options.std >= 0, "Lighting", "a standard deviation cannot be {}.", options.std);
  return {"Lighting", [options](const at::Tensor&, Rng& rng) {
            std::vector<Linear> channels(3);
            for (int axis = 0; axis < 3; ++axis) {
              const double along = rng.normal() * options.std * options.eigenvalues[axis];
              for (int c = 0; c < 3; ++c) {
                channels[c].offset += options.eigenvectors[c][axis] * along;
              }
            }
            return photometric(
                "Lighting", [channels, clip = options.clip](const at::Tensor& image) {
                  TP_CHECK(channels_of(image) == 3, "Lighting",
                           "this needs an image of three colours, not of {}.", channels_of(image));
                  return detail::apply(image, channels, clip);
                });
          }};
}

ImageAugmentor Gamma(GammaOptions options) {
  TP_CHECK(options.range.low > -1 && options.range.low <= options.range.high, "Gamma",
           "gamma must be greater than -1, but the range is {} to {}.", options.range.low,
           options.range.high);
  return {"Gamma", [options](const at::Tensor&, Rng& rng) {
            const double gamma = rng.uniform(options.range.low, options.range.high);
            return photometric(
                "Gamma", [gamma](const at::Tensor& image) { return change_gamma(image, gamma); });
          }};
}

ImageAugmentor GaussianBlur(GaussianBlurOptions options) {
  TP_CHECK(options.radius.low >= 0 && options.radius.low <= options.radius.high, "GaussianBlur",
           "there are no radii from {} to {}.", options.radius.low, options.radius.high);
  check_range("GaussianBlur", options.sigma, 0);
  return {"GaussianBlur", [options](const at::Tensor&, Rng& rng) {
            return photometric("GaussianBlur",
                               [blur = draw_blur(options, rng)](const at::Tensor& image) {
                                 return map_mat(image, [&](const cv::Mat& in) {
                                   cv::Mat out;
                                   cv::GaussianBlur(in, out, blur.window, blur.sigma_x,
                                                    blur.sigma_y, cv::BORDER_REPLICATE);
                                   return out;
                                 });
                               });
          }};
}

ImageAugmentor Clip(ClipOptions options) {
  TP_CHECK(options.min <= options.max, "Clip", "there is nothing between {} and {}.", options.min,
           options.max);
  return fixed("Clip", [options](const at::Tensor& image) {
    if (image.scalar_type() == at::kFloat) return image.clamp(options.min, options.max);
    return image.clamp(std::clamp(options.min, 0.0, 255.0), std::clamp(options.max, 0.0, 255.0))
        .to(at::kByte);
  });
}

ImageAugmentor Grayscale(GrayscaleOptions options) {
  return fixed("Grayscale", [options](const at::Tensor& image) { return to_grey(image, options); });
}

ImageAugmentor ColorSpace(ColorConversion conversion) {
  const int64_t channels = conversion == ColorConversion::kGrayToRgb ? 1 : 3;
  return fixed("ColorSpace", [code = opencv_code(conversion), channels](const at::Tensor& image) {
    return convert_colors("ColorSpace", image, code, channels);
  });
}

ImageAugmentor MeanVarianceNormalize(MeanVarianceNormalizeOptions options) {
  return fixed("MeanVarianceNormalize", [options](const at::Tensor& image) {
    const int64_t values = options.all_channels ? image.numel() : image.size(0) * image.size(1);
    return detail::apply_as_float(
        image, by_stats(image, options.all_channels, [&](const ChannelStats& stats) {
          return to_unit_variance(stats, values);
        }));
  });
}

ImageAugmentor MinMaxNormalize(MinMaxNormalizeOptions options) {
  return fixed("MinMaxNormalize", [options](const at::Tensor& image) {
    return detail::apply_as_float(
        image, by_stats(image, options.all_channels,
                        [&](const ChannelStats& stats) { return to_extremes(stats, options); }));
  });
}

ImageAugmentor ToUint8() {
  return fixed("ToUint8", [](const at::Tensor& image) {
    if (image.scalar_type() == at::kByte) return image;
    return map_mat(image, [](const cv::Mat& in) {
      cv::Mat out;
      in.convertTo(out, CV_8U);
      return out;
    });
  });
}

ImageAugmentor ToFloat32() {
  return fixed("ToFloat32", [](const at::Tensor& image) {
    if (image.scalar_type() == at::kFloat) return image;
    return map_mat(image, [](const cv::Mat& in) {
      cv::Mat out;
      in.convertTo(out, CV_32F);
      return out;
    });
  });
}

}  // namespace tensorpack::imgaug
