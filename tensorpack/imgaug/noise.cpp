// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/noise.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <opencv2/imgcodecs.hpp>

#include "tensorpack/imgaug/mat.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

// A transform holds the seed of its noise, not the noise: it gives the same to images of any size.
template <typename Function>
Transform noise(const char* name, Rng& rng, Function function) {
  return photometric(name, [seed = rng(), function](const at::Tensor& image) {
    at::Tensor result = image.clone(at::MemoryFormat::Contiguous);
    Rng own(seed, 0);
    if (image.scalar_type() == at::kByte) {
      function(result.data_ptr<uint8_t>(), result.numel(), own);
    } else {
      function(result.data_ptr<float>(), result.numel(), own);
    }
    return result;
  });
}

struct AddNormal {
  GaussianNoiseOptions options;

  void operator()(uint8_t* values, int64_t count, Rng& rng) const {
    for (uint8_t* value = values; value != values + count; ++value) {
      const double sum = *value + options.sigma * rng.normal();
      *value = static_cast<uint8_t>(std::lrint(std::clamp(sum, 0.0, 255.0)));
    }
  }

  void operator()(float* values, int64_t count, Rng& rng) const {
    for (float* value = values; value != values + count; ++value) {
      const double sum = *value + options.sigma * rng.normal();
      *value = static_cast<float>(options.clip ? std::clamp(sum, 0.0, 255.0) : sum);
    }
  }
};

struct Sprinkle {
  SaltPepperNoiseOptions options;

  template <typename T>
  void operator()(T* values, int64_t count, Rng& rng) const {
    for (T* value = values; value != values + count; ++value) {
      const double drawn = rng.uniform();
      if (drawn < options.black) {
        *value = 0;
      } else if (drawn >= 1 - options.white) {
        *value = 255;
      }
    }
  }
};

at::Tensor through_jpeg(const at::Tensor& image, int quality) {
  const int64_t channels = channels_of(image);
  TP_CHECK(channels == 1 || channels == 3, "JpegNoise",
           "JPEG images have one channel or three, not {}.", channels);
  return map_mat(image, [&](const cv::Mat& in) {
    cv::Mat bytes;
    in.convertTo(bytes, CV_8U);
    std::vector<uchar> file;
    cv::imencode(".jpg", bytes, file, {cv::IMWRITE_JPEG_QUALITY, quality});
    cv::Mat out;
    cv::imdecode(file, channels == 1 ? cv::IMREAD_GRAYSCALE : cv::IMREAD_COLOR)
        .convertTo(out, in.depth());
    return out;
  });
}

}  // namespace

ImageAugmentor JpegNoise(JpegNoiseOptions options) {
  const auto& [low, high] = options.quality;
  TP_CHECK(low >= 1 && low <= high && high <= 100, "JpegNoise",
           "the quality must be in 1..100, but the range is {} to {}.", low, high);
  return {"JpegNoise", [options](const at::Tensor&, Rng& rng) {
            const auto quality =
                static_cast<int>(rng.between(options.quality.low, options.quality.high));
            return photometric("JpegNoise", [quality](const at::Tensor& image) {
              return through_jpeg(image, quality);
            });
          }};
}

ImageAugmentor GaussianNoise(GaussianNoiseOptions options) {
  TP_CHECK(options.sigma >= 0, "GaussianNoise", "sigma must not be negative, got {}.",
           options.sigma);
  return {"GaussianNoise", [options](const at::Tensor&, Rng& rng) {
            return noise("GaussianNoise", rng, AddNormal{options});
          }};
}

ImageAugmentor SaltPepperNoise(SaltPepperNoiseOptions options) {
  TP_CHECK(options.white >= 0 && options.black >= 0 && options.white + options.black <= 1,
           "SaltPepperNoise", "{} and {} are not shares of a whole.", options.white, options.black);
  return {"SaltPepperNoise", [options](const at::Tensor&, Rng& rng) {
            return noise("SaltPepperNoise", rng, Sprinkle{options});
          }};
}

}  // namespace tensorpack::imgaug
